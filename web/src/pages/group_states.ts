/** The tone of a consumer group's state. */
export function groupTone(state: string | null): "ok" | "warn" | "info" | "" {
  if (state === "Stable") return "ok";
  if (state === "Empty" || state === null) return "";
  return state === "Dead" ? "warn" : "info";
}
