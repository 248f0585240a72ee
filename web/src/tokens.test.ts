import { expect, it } from "vitest";
import css from "./tokens.css?raw";

/** Read the colours of a theme from tokens.css. */
function colours(selector: string): Map<string, string> {
  const start = css.indexOf(`${selector} {`);
  const block = css.slice(start, css.indexOf("}", start));
  return new Map([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, value]) => [name ?? "", value ?? ""]));
}

function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [light = 0, dark = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

/** Text and its ground: at least 4.5. */
const TEXTS: [string, string][] = [
  ...["ground", "panel", "panel-2", "track", "accent-veil"].flatMap((ground): [string, string][] => [["ink", ground], ["ink-2", ground]]),
  ...["ground", "panel", "panel-2", "accent-veil"].map((ground): [string, string] => ["accent", ground]),
  ...["ok", "warn", "bad"].flatMap((tone): [string, string][] => [[tone, `${tone}-veil`], [tone, "panel"]]),
  ...[0, 1, 2, 3, 4, 5, 6, 7, "unknown"].map((epoch): [string, string] => ["epoch-ink", `epoch-${epoch}`]),
  ["accent-ink", "accent"], ["accent-ink", "bad"], ["leo", "panel"],
];
/** Signs and borders of controls: at least 3. */
const SIGNS: [string, string][] = [["line-2", "panel"], ["hw", "panel"], ["leo", "panel"], ["isr", "panel"], ["hw", "track"]];

it.each([":root", ':root[data-theme="dark"]'])("has enough contrast in %s", (theme) => {
  const found = colours(theme);
  const low = (pairs: [string, string][], least: number): string[] =>
    pairs
      .map(([a, b]) => [`${a} on ${b}`, contrast(found.get(a) ?? "#000000", found.get(b) ?? "#000000")] as const)
      .filter(([, value]) => value < least)
      .map(([pair, value]) => `${pair}: ${value.toFixed(2)}`);
  expect(low(TEXTS, 4.5)).toEqual([]);
  expect(low(SIGNS, 3)).toEqual([]);
});
