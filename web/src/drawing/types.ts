/** What a lane draws. Offsets are numbers; `end` is exclusive everywhere. */

/** Offsets that one leader epoch wrote. */
export interface EpochRange {
  readonly epoch: number;
  readonly start: number;
  readonly end: number;
}

/** A record with a text of its own, as stories have them; drawn where cells are wide enough. */
export interface RecordCell {
  readonly offset: number;
  readonly epoch: number;
  /** Shown in the cell instead of the epoch; the epoch is then the small number below. */
  readonly text?: string;
  /** Shown if the text does not fit. */
  readonly short?: string;
  /** Whether it ends a transaction, and is no data. */
  readonly marker?: boolean;
}

/**
 * A sign over a range of offsets.
 *
 * - `lost`: a cross: the replica no longer has these records, or will truncate them.
 * - `damaged`: a dotted red frame: the files are damaged from here on.
 * - `new`: a bright frame: appended in this step.
 * - `focus`: a strong frame: the offset that a text or the pointer is about.
 */
export type MarkKind = "lost" | "damaged" | "new" | "focus";

export interface Mark {
  readonly kind: MarkKind;
  readonly start: number;
  readonly end: number;
  readonly text?: string;
}

/** Whether the replica's broker works: `down` and `unreachable` lanes are drawn faded. */
export type LaneState = "ok" | "down" | "paused" | "unreachable";

/** One replica's log. Null means unknown. */
export interface LaneData {
  /** `broker 1`, `A`. */
  readonly name: string;
  readonly start: number;
  /** The log end offset. */
  readonly end: number | null;
  readonly highWatermark: number | null;
  /** The last stable offset, drawn if an open transaction holds it below the high watermark. */
  readonly lastStable?: number | null;
  /** Ranges by epoch, oldest first. */
  readonly epochs: readonly EpochRange[];
  readonly inIsr: boolean;
  readonly leads: boolean;
  readonly state?: LaneState;
  /** Records with texts; offsets without one are drawn from `epochs`. */
  readonly records?: readonly RecordCell[];
  readonly marks?: readonly Mark[];
  /** A second line below the name, such as `12 behind` or `down`. */
  readonly note?: string;
}
