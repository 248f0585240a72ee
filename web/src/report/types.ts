/** What the demo writes into its report (src/tidelog/apps/demo/report/lanes.py). */

/** Log end offset, high watermark, [epoch, start offset] oldest first. */
export type ReplicaLog = readonly [number, number, readonly (readonly [number, number])[]];

export interface Moment {
  readonly at_s: number;
  /** Null while no broker leads. */
  readonly leader: number | null;
  readonly epoch: number | null;
  readonly isr: readonly number[];
  /** By place in `brokers`; null: the broker does not respond. */
  readonly logs: readonly (ReplicaLog | null)[];
}

export interface Run {
  readonly brokers: readonly number[];
  readonly moments: readonly Moment[];
  readonly marks: readonly { readonly at_s: number; readonly text: string; readonly kind: string }[];
}
