/** Which rows of a long list are visible, and how they are sorted. */

export interface Visible {
  readonly first: number;
  readonly last: number;
}

const STEP = 8;
const EXTRA = 4;

/**
 * Return the rows [first, last) of a list that is `top` pixels below the top of the window.
 *
 * Some rows above and below are included, so that fast scrolling shows no gap. Both change in steps, so that most
 * scroll events change nothing.
 */
export function visibleRows(top: number, windowHeight: number, rowHeight: number, count: number): Visible {
  const first = Math.floor((Math.floor(-top / rowHeight) - EXTRA) / STEP) * STEP;
  const last = Math.ceil((Math.ceil((windowHeight - top) / rowHeight) + EXTRA) / STEP) * STEP;
  return { first: Math.min(count, Math.max(0, first)), last: Math.max(0, Math.min(count, last)) };
}

export type SortKey = string | number | null | undefined;

/** Compare for a sort: texts naturally (`t2` before `t10`), unknown values last. */
export function compareKeys(a: SortKey, b: SortKey, descending: boolean): number {
  const missing = Number(a === null || a === undefined) - Number(b === null || b === undefined);
  if (missing !== 0) return missing;
  const order =
    typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a ?? ""), String(b ?? ""));
  return descending ? -order : order;
}

const collator = new Intl.Collator("en", { numeric: true });
