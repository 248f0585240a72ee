/** Numbers, sizes and times as text. */

export const UNKNOWN = "–";

/** `12,345`; a dash if unknown. */
export function number(value: number | null | undefined): string {
  return value === null || value === undefined ? UNKNOWN : value.toLocaleString("en");
}

/** `1.2 k`, `3.4 M`: for rates and tight places. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (Math.abs(value) < 1000) return Number.isInteger(value) ? String(value) : value.toFixed(value < 10 ? 1 : 0);
  const units = ["k", "M", "G", "T"];
  let scaled = value;
  let unit = "";
  for (const next of units) {
    if (Math.abs(scaled) < 999.5) break;
    scaled /= 1000;
    unit = next;
  }
  return `${scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)} ${unit}`;
}

/** `259 B`, `1.5 MiB`. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value < 1024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let scaled = value;
  let unit = "B";
  for (const next of units) {
    if (scaled < 1024) break;
    scaled /= 1024;
    unit = next;
  }
  return `${scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${unit}`;
}

/** `12 ms`, `3.4 s`, `5 min`, `2 h`, `3 d`. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return UNKNOWN;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** `14:03:12` in local time; with milliseconds `14:03:12.123`. */
export function clock(ms: number, millis = false): string {
  const at = new Date(ms);
  const whole = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return millis ? `${whole}.${String(at.getMilliseconds()).padStart(3, "0")}` : whole;
}

/** `2026-11-18 14:03:12.123` in local time. */
export function dateTime(ms: number): string {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms, true)}`;
}

/** The value of an input of type datetime-local. */
export function timeInput(ms: number): string {
  return dateTime(ms).replace(" ", "T");
}

/** `1 replica`, `2 replicas`. */
export function count(n: number, what: string): string {
  return `${number(n)} ${what}${n === 1 ? "" : "s"}`;
}
