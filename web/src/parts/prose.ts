/** Split a text at backticks: odd parts are code. */
export function proseParts(text: string): { text: string; code: boolean }[] {
  const parts = text.split("`");
  // An odd number of backticks is not markup.
  if (parts.length % 2 === 0) return [{ text, code: false }];
  return parts.map((part, n) => ({ text: part, code: n % 2 === 1 })).filter((part) => part.text !== "");
}
