/** Keys and values of records as text. */

const INDENT = "  ";
/** Deeper levels are not indented further: a line would be longer than its text. */
const DEPTH_MAX = 40;

/**
 * Indent JSON. Everything but white space stays as it is written: JSON.parse would round numbers above 2^53 and drop
 * repeated keys.
 */
export function indentJson(text: string): string {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  const out: string[] = [];
  let depth = 0;
  const line = (): string => `\n${INDENT.repeat(Math.min(depth, DEPTH_MAX))}`;
  tokens.forEach((token, n) => {
    const before = tokens[n - 1] ?? "";
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") out.push(line());
    } else if (before === "{" || before === "[" || before === ",") out.push(line());
    out.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
  });
  return out.join("");
}

const ROW = 16;

/** Bytes in rows of 16: position, hexadecimal, ASCII. */
export function hexDump(base64: string): string {
  const bytes = Array.from(atob(base64), (each) => each.charCodeAt(0));
  const rows: string[] = [];
  for (let at = 0; at < bytes.length; at += ROW) {
    const part = bytes.slice(at, at + ROW);
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const ascii = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    rows.push(`${at.toString(16).padStart(4, "0")}  ${hex.padEnd(ROW * 3 - 1)}  ${ascii}`);
  }
  return rows.join("\n");
}

/** The first bytes in hexadecimal, for a line of a list. */
export function hexStart(base64: string, most = 24): string {
  const bytes = Array.from(atob(base64.slice(0, Math.ceil(most / 3) * 4)), (each) => each.charCodeAt(0));
  return bytes.slice(0, most).map((each) => each.toString(16).padStart(2, "0")).join(" ");
}
