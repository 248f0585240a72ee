/** Linear scales from offsets to pixels, and the choice of the part of a log that is shown large. */

/** Maps offsets `from` (inclusive) to `to` (exclusive) to pixels `x0` to `x1`. */
export interface Scale {
  readonly from: number;
  readonly to: number;
  readonly x0: number;
  readonly x1: number;
}

export interface Span {
  readonly from: number;
  readonly to: number;
}

export const CELL_MIN_PX = 15;
/** Below this width of one offset, ranges are drawn instead of cells. */

export function scale(span: Span, x0: number, x1: number): Scale {
  // A container that is not laid out yet has no width.
  return { from: span.from, to: Math.max(span.to, span.from + 1), x0, x1: Math.max(x1, x0 + 1) };
}

/** Pixels of one offset. */
export function cellWidth(s: Scale): number {
  return (s.x1 - s.x0) / (s.to - s.from);
}

/** The x of an offset's left edge; may lie outside the scale. */
export function position(s: Scale, offset: number): number {
  return s.x0 + (offset - s.from) * cellWidth(s);
}

/** The x of an offset's left edge, moved into the scale. */
export function clamped(s: Scale, offset: number): number {
  return Math.min(s.x1, Math.max(s.x0, position(s, offset)));
}

/** The offset at x, within the scale. */
export function offsetAt(s: Scale, x: number): number {
  const offset = Math.floor(s.from + (x - s.x0) / cellWidth(s));
  return Math.min(s.to - 1, Math.max(s.from, offset));
}

export function showsCells(s: Scale): boolean {
  return cellWidth(s) >= CELL_MIN_PX;
}

/** Round offsets at which an axis has ticks: at most `max` of them. */
export function ticks(s: Scale, max: number): number[] {
  const wanted = (s.to - s.from) / Math.max(1, max);
  const power = 10 ** Math.floor(Math.log10(Math.max(1, wanted)));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) ?? 10 * power;
  const found: number[] = [];
  for (let at = Math.ceil(s.from / step) * step; at < s.to; at += step) found.push(at);
  return found;
}

/** Smallest window, so that a few records do not fill the whole width. */
const WINDOW_MIN = 16;

/**
 * The end of the log that contains every gap between a high watermark and a log end.
 *
 * Its size is a power of two, and stays that of `before` while the gaps fill at least a fifth of it: so the
 * picture does not zoom in and out while records are written.
 */
export function tailWindow(marks: readonly number[], start: number, before: Span | null): Span {
  if (marks.length === 0) return { from: start, to: start + WINDOW_MIN };
  const last = Math.max(...marks);
  const first = Math.min(...marks);
  const wanted = Math.max(WINDOW_MIN, Math.ceil((last - first) * 1.5) + 4);
  let size = 2 ** Math.ceil(Math.log2(wanted));
  const kept = before === null ? 0 : before.to - before.from;
  if (kept >= wanted && kept <= size * 4) size = kept;
  const ahead = Math.max(1, Math.round(size / 16));
  const from = Math.max(Math.min(start, first), last + ahead - size);
  return { from, to: from + size };
}
