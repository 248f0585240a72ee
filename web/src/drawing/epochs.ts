/** Epoch histories as ranges. */
import type { EpochRange } from "./types";

export const EPOCH_COLOURS = 8;

/** The class that sets `--epoch` to the colour of this leader epoch. */
export function epochClass(epoch: number): string {
  return `epoch-${((epoch % EPOCH_COLOURS) + EPOCH_COLOURS) % EPOCH_COLOURS}`;
}

/**
 * Convert an epoch cache, [epoch, start offset] oldest first, to ranges.
 *
 * The cache may begin before the log's start (retention deleted its records) and may be unknown.
 */
export function epochRanges(
  epochs: readonly (readonly [number, number])[] | null,
  start: number,
  end: number | null,
): EpochRange[] {
  if (end === null || end <= start) return [];
  if (epochs === null || epochs.length === 0) return [{ epoch: -1, start, end }];
  const found: EpochRange[] = [];
  epochs.forEach(([epoch, from], n) => {
    const next = epochs[n + 1]?.[1] ?? end;
    const range = { epoch, start: Math.max(from, start), end: Math.min(next, end) };
    if (range.end > range.start) found.push(range);
  });
  const first = found[0];
  if (first === undefined) return [{ epoch: -1, start, end }];
  if (first.start > start) found.unshift({ epoch: -1, start, end: first.start });
  return found;
}

/** The leader epoch of an offset, or null. */
export function epochAt(ranges: readonly EpochRange[], offset: number): number | null {
  return ranges.find((range) => range.start <= offset && offset < range.end)?.epoch ?? null;
}
