/** Stories and lessons as the backend sends them (GET /api/stories…). */

/** Offset, leader epoch, name. */
export type Entry = readonly [number, number, string];

export interface StorySummary {
  readonly name: string;
  readonly folder: string;
  readonly title: string;
  readonly policies: readonly string[];
  readonly covers: readonly string[];
}

export interface ClusterStep {
  readonly say: string;
  readonly run: string;
  readonly actions: readonly { readonly name: string; readonly body: Readonly<Record<string, unknown>> }[];
  readonly look: string | null;
  /** Whether the cluster must reject the action: that is what the step shows. */
  readonly rejected: boolean;
}

export interface LessonData {
  readonly number: number;
  readonly title: string;
  readonly text: string;
  readonly stories: readonly string[];
  readonly on_cluster: readonly ClusterStep[];
}

export interface Shelf {
  readonly stories: readonly StorySummary[];
  readonly lessons: readonly LessonData[];
}

/** One printed line: a message if it has a sender. */
export interface PrintedLine {
  readonly text: string;
  readonly from: string;
  readonly to: string;
  readonly mark: "" | "lost" | "held" | "late";
}

export interface ReplicaData {
  readonly name: string;
  readonly role: "leader" | "follower" | "waiting" | "down";
  /** `story`, `other`, or the internal topic of a coordinator. */
  readonly topic: string;
  readonly internal: boolean;
  /** Whether the controller made it the leader of its partition. */
  readonly leads: boolean;
  readonly alive: boolean;
  readonly assigned: boolean;
  readonly in_isr: boolean;
  readonly in_elr: boolean;
  readonly leader_epoch: number | null;
  readonly log_start_offset: number;
  readonly log_end_offset: number;
  readonly high_watermark: number;
  /** Null in stories without transactions, and for coordinators. */
  readonly last_stable_offset: number | null;
  readonly epochs: readonly (readonly [number, number])[];
  readonly log: readonly Entry[];
  readonly omitted: number;
}

export interface Registration {
  readonly leader: string | null;
  readonly leader_epoch: number;
  readonly isr: readonly string[];
  readonly elr: readonly string[];
}

export interface FrameData {
  readonly lines: readonly PrintedLine[];
  readonly problems: readonly string[];
  readonly replicas: readonly ReplicaData[];
  readonly registration: Registration | null;
  readonly lost: readonly Entry[];
}

export interface StepData {
  readonly line: number;
  readonly command: string;
  readonly given: boolean;
  readonly checks: boolean;
  readonly prose: readonly string[];
  readonly differs: boolean;
  readonly frames: Readonly<Record<string, FrameData>>;
}

export interface Verdict {
  readonly policy: string;
  readonly shipped: boolean;
  readonly passed: boolean;
  readonly kept: readonly string[];
  readonly broken: readonly { readonly invariant: string; readonly what: string }[];
}

export interface StoryData {
  readonly name: string;
  readonly folder: string;
  readonly title: string;
  readonly prose: readonly string[];
  readonly closing: readonly string[];
  readonly covers: readonly string[];
  /** The rules; JSON calls them policies. */
  readonly policies: readonly string[];
  readonly text: string;
  readonly passed: boolean;
  readonly parts_at: number | null;
  readonly legend: readonly { readonly sign: string; readonly meaning: string }[];
  readonly verdicts: readonly Verdict[];
  readonly problems: readonly { readonly policy: string; readonly line: number; readonly message: string }[];
  readonly steps: readonly StepData[];
}
