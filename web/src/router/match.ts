/** Match paths against patterns such as `/topics/:topic/:partition`. */

export type Params = Readonly<Record<string, string>>;

/** Return the decoded parameters, or null if the path does not match. */
export function matchPath(pattern: string, path: string): Params | null {
  const wanted = pattern.split("/").filter(Boolean);
  const given = path.split("/").filter(Boolean);
  if (wanted.length !== given.length) return null;
  const params: Record<string, string> = {};
  for (const [n, part] of wanted.entries()) {
    const value = given[n] ?? "";
    if (!part.startsWith(":")) {
      if (part !== value) return null;
      continue;
    }
    try {
      params[part.slice(1)] = decodeURIComponent(value);
    } catch {
      return null; // a broken percent sequence
    }
  }
  return params;
}

/** Join parts to a path, each encoded: `path("topics", name, 0)`. */
export function path(...parts: readonly (string | number)[]): string {
  return `/${parts.map((part) => encodeURIComponent(String(part))).join("/")}`;
}
