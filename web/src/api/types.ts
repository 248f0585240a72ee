/** The JSON of the console's backend. Times are milliseconds since 1970; null means unknown. */

export type ProblemKind = "offline" | "under_min_isr" | "under_replicated" | "damaged";
export type Process = "running" | "paused" | "stopped";

export interface Failure {
  readonly error: string;
  readonly advice: string;
  readonly status?: number;
  /** The line of a story that is wrong. */
  readonly line?: number | null;
}

export interface OfferedAction {
  readonly name: string;
  readonly offered: boolean;
  readonly reason: string | null;
}

export interface Session {
  readonly version: string;
  readonly kind: "tidelog" | "kafka";
  readonly cluster_id: string | null;
  readonly bootstrap: string | null;
  readonly data?: string | null;
  readonly local: boolean;
  readonly allow_actions: boolean;
  readonly actions?: readonly OfferedAction[];
  readonly history: {
    readonly from_ms: number;
    readonly to_ms: number;
    readonly bytes: number;
    readonly max_bytes: number;
  } | null;
  /** `cluster`, or `file NAME`. */
  readonly source: string;
  /** What a file does not know; null for a cluster. */
  readonly missing?: string | null;
}

export interface BrokerRow {
  readonly id: number;
  readonly host: string | null;
  readonly port: number | null;
  readonly rack: string | null;
  readonly controller: boolean;
  readonly registered: boolean;
  readonly fenced: boolean;
  readonly unreachable: string | null;
  readonly leads: number;
  readonly follows: number;
  readonly in_sync: number;
  readonly broker_epoch: number | null;
  readonly acting: boolean | null;
  readonly log_bytes: number | null;
  readonly process: Process | null;
  readonly isolated: boolean | null;
}

export interface TopicRow {
  readonly topic: string;
  readonly partitions: number;
  readonly replication_factor: number;
  readonly offline: number;
  readonly under_replicated: number;
  readonly under_min_isr?: number;
  readonly internal: boolean;
  readonly log_end_offset_sum: number | null;
  readonly produced_per_s: number | null;
}

export interface Problem {
  readonly topic: string;
  readonly partition: number;
  readonly kind: ProblemKind;
  readonly text: string;
}

export interface Overview {
  readonly at_ms: number;
  readonly kind: "tidelog" | "kafka";
  readonly cluster_id: string | null;
  readonly controller: number | null;
  readonly brokers: readonly BrokerRow[];
  readonly topics: readonly TopicRow[];
  readonly counts: {
    readonly topics: number;
    readonly partitions: number;
    readonly replicas: number;
    readonly offline: number;
    readonly under_replicated: number;
    readonly under_min_isr: number;
    readonly damaged: number;
  };
  readonly problems: readonly Problem[];
  readonly rates: { readonly produced_per_s: number | null; readonly committed_per_s: number | null } | null;
}

export interface Config {
  readonly name: string;
  readonly value: string | null;
  readonly source: string;
  readonly is_default: boolean;
}

export interface PartitionRow {
  readonly partition: number;
  readonly leader: number | null;
  readonly leader_epoch: number;
  readonly replicas: readonly number[];
  readonly isr: readonly number[];
  readonly elr: readonly number[] | null;
  readonly min_isr: number | null;
  readonly log_start_offset: number | null;
  readonly log_end_offset: number | null;
  readonly high_watermark: number | null;
  readonly problem: ProblemKind | null;
}

export interface TopicPage {
  readonly at_ms: number;
  readonly topic: string;
  readonly topic_id: string | null;
  readonly internal?: boolean;
  readonly configs: readonly Config[];
  readonly partitions: readonly PartitionRow[];
}

export interface Damage {
  readonly offset: number;
  readonly reason: string;
}

export interface Replica {
  readonly broker: number;
  readonly address: string | null;
  readonly role: string;
  readonly in_isr: boolean;
  readonly unreachable: string | null;
  readonly log_start_offset: number | null;
  readonly log_end_offset: number | null;
  readonly high_watermark: number | null;
  readonly last_stable_offset: number | null;
  readonly leader_epoch: number | null;
  readonly epochs: readonly (readonly [number, number])[] | null;
  readonly lag: number | null;
  readonly lag_ms: number | null;
  readonly out_for_ms: number | null;
  readonly why_out: string | null;
  readonly recovery_point: number | null;
  readonly size: number | null;
  readonly segments: number | null;
  readonly damage: Damage | null;
}

export interface Loss {
  readonly broker: number;
  readonly leader_epoch?: number;
  readonly start?: number;
  readonly end?: number;
  readonly lost?: number;
}

/** One entry of a broker's loss ledger. */
export interface LedgerEntry {
  readonly id: string;
  readonly at_ms: number;
  readonly broker: number | null;
  readonly event: "loss" | "unclean_election";
  readonly topic: string;
  readonly partition: number;
  readonly cause: string;
  readonly leader: number | null;
  readonly leader_epoch: number | null;
  readonly first_epoch: number | null;
  readonly last_epoch: number | null;
  readonly start: number | null;
  readonly end: number | null;
  readonly records: number | null;
  readonly committed: number | null;
  readonly acked_1: number | null;
  readonly acked_all: number | null;
  readonly not_acked: number | null;
  readonly acks_unknown: number | null;
  readonly text: string;
}

export interface LossesPage {
  readonly losses: readonly LedgerEntry[];
  /** Brokers whose ledger could not be read, with the reason. */
  readonly unread: Readonly<Record<string, string>>;
}

/** The oldest transaction in a partition that is not finished. */
export interface Unstable {
  readonly offset: number;
  /** Null if it has ended, and its marker is not committed yet. */
  readonly producer_id: number | null;
  readonly producer_epoch: number | null;
  readonly last_write_ms: number | null;
  readonly open_transactions: number;
}

export interface PartitionState {
  readonly topic: string;
  readonly partition: number;
  readonly topic_id: string | null;
  readonly leader: number | null;
  readonly leader_epoch: number;
  readonly partition_epoch: number | null;
  readonly isr: readonly number[];
  readonly elr: readonly number[] | null;
  readonly min_isr: number | null;
  readonly replicas: readonly Replica[];
  readonly unclean_election: Readonly<Record<string, unknown>> | null;
  readonly losses: readonly Loss[];
  readonly lost: readonly number[] | null;
  readonly unstable?: Unstable | null;
}

export interface Follower {
  readonly broker: number;
  readonly log_end_offset: number | null;
  readonly last_fetch_ms_ago: number | null;
  /** From which offset a fetch of it waits at the leader for records; null: no fetch waits there. */
  readonly waits_from: number | null;
  readonly in_isr: boolean;
}

export type Severity = "ok" | "info" | "warn" | "bad";

export interface Explanation {
  readonly topic: string;
  readonly severity: Severity;
  readonly text: string;
  readonly detail: string;
}

export interface HistoryEvent {
  readonly at_ms: number;
  readonly ts?: string;
  readonly level: string;
  readonly broker: number | null;
  readonly event: string;
  readonly text: string;
  readonly topic?: string;
  readonly partition?: number;
}

/** A value of something at two moments: a number, a name, brokers or members, a reassignment; null: none. */
type ChangedValue =
  | number
  | string
  | readonly (number | string)[]
  | { readonly adding: readonly number[]; readonly removing: readonly number[] }
  | null;

export interface Change {
  readonly what: string;
  readonly before: ChangedValue;
  readonly after: ChangedValue;
}

export interface PartitionChange {
  readonly topic: string;
  readonly partition: number;
  readonly changes: readonly Change[];
}

export interface BrokerChange {
  readonly broker: number;
  /** `up`, `silent` or `away`. */
  readonly before: string;
  readonly after: string;
  readonly restarted: boolean;
  readonly changes: readonly Change[];
}

export interface GroupChange {
  readonly group: string;
  readonly changes: readonly Change[];
  readonly offsets: readonly { readonly topic: string; readonly partition: number; readonly before: number | null; readonly after: number | null }[];
}

export interface Difference {
  readonly from_ms: number;
  readonly to_ms: number;
  readonly brokers: readonly BrokerChange[];
  readonly controller: { readonly before: number | null; readonly after: number | null } | null;
  readonly topics: {
    readonly created: readonly string[];
    readonly deleted: readonly string[];
    readonly changed: readonly { readonly topic: string; readonly changes: readonly Change[] }[];
    readonly written: readonly { readonly topic: string; readonly written: number; readonly committed: number }[];
  };
  /** Null if the history has no groups of these times. */
  readonly groups: {
    readonly created: readonly string[];
    readonly deleted: readonly string[];
    readonly changed: readonly GroupChange[];
    readonly groups_changed: number;
  } | null;
  readonly partitions: readonly PartitionChange[];
  readonly partitions_changed: number;
  readonly events: Readonly<Record<string, number>>;
  readonly losses: readonly HistoryEvent[];
}

export interface PartitionPage {
  readonly at_ms: number;
  readonly partition: PartitionState;
  readonly missing?: string | null;
  readonly followers: readonly Follower[];
  readonly pending_isr: { readonly kind: string; readonly broker: number; readonly brokers?: readonly number[] } | null;
  /** The logs of replicas whose broker does not respond, as the console saw them last. */
  readonly last_seen?: readonly SeenLog[];
  readonly explain: readonly Explanation[];
  readonly events: readonly HistoryEvent[];
}

export interface SeenLog extends Pick<
  Replica,
  "broker" | "log_start_offset" | "log_end_offset" | "high_watermark" | "last_stable_offset" | "epochs" | "damage"
> {
  readonly at_ms: number;
}

export interface BrokerReplica {
  readonly topic: string;
  readonly partition: number;
  readonly role: string | null;
  readonly leads: boolean;
  readonly in_isr: boolean;
  readonly log_start_offset: number | null;
  readonly log_end_offset: number | null;
  readonly high_watermark: number | null;
  readonly size: number | null;
  readonly damage: Damage | null;
}

export interface BrokerPage {
  readonly at_ms: number;
  readonly broker: BrokerRow;
  readonly state: Readonly<Record<string, unknown>> | null;
  readonly replicas: readonly BrokerReplica[];
  readonly configs: readonly Config[];
}

export interface GroupRow {
  readonly group: string;
  readonly protocol_type: string;
  readonly state: string | null;
  readonly kind: string | null;
  readonly coordinator: number;
  /** How many; null if unknown. */
  readonly members: number | null;
  /** The sum over the partitions; null if unknown. */
  readonly lag: number | null;
}

export interface GroupsPage {
  readonly at_ms: number;
  readonly groups: readonly GroupRow[];
  readonly failed?: readonly string[];
}

export interface TransactionRow {
  readonly transactional_id: string;
  readonly coordinator: number;
  readonly producer_id: number;
  readonly state: string;
  /** Only of transactions that are open or ending. */
  readonly producer_epoch: number | null;
  readonly start_time_ms: number | null;
  readonly timeout_ms: number | null;
  readonly partitions: number | null;
}

/** A partition in which an open transaction holds back read-committed consumers. */
export interface OpenTransaction extends Unstable {
  readonly topic: string;
  readonly partition: number;
  readonly last_stable_offset: number;
  readonly high_watermark: number;
  /** Null: unknown. */
  readonly transactional_id: string | null;
  /** No coordinator will end it. */
  readonly hangs: boolean;
}

export interface TransactionsPage {
  readonly at_ms: number;
  /** Null at an earlier moment: the history has no transactional ids. */
  readonly transactions: readonly TransactionRow[] | null;
  /** How many there are; `transactions` has the first ones. */
  readonly total: number | null;
  readonly open: readonly OpenTransaction[];
  readonly failed: readonly string[];
  readonly missing: string | null;
}

export interface TransactionPartition {
  readonly topic: string;
  readonly partition: number;
  readonly start_offset: number | null;
  readonly last_timestamp: number | null;
  readonly error: string | null;
  readonly last_stable_offset: number | null;
  readonly high_watermark: number | null;
}

export interface TransactionPage {
  readonly at_ms: number;
  readonly transactional_id: string;
  readonly coordinator: number;
  readonly producer_id: number;
  readonly producer_epoch: number;
  readonly state: string;
  readonly timeout_ms: number;
  readonly start_time_ms: number | null;
  readonly partitions: readonly TransactionPartition[];
}

export interface Member {
  readonly member_id: string;
  readonly instance_id: string | null;
  readonly client_id: string;
  readonly host: string;
  readonly partitions: readonly (readonly [string, number])[];
}

export interface GroupOffset {
  readonly topic: string;
  readonly partition: number;
  readonly current_offset: number | null;
  readonly log_end_offset: number | null;
  readonly lag: number | null;
  readonly member_id: string | null;
  readonly host: string | null;
  readonly client_id: string | null;
}

export interface GroupPage {
  readonly at_ms: number;
  readonly group: string;
  readonly state: string;
  readonly coordinator: { readonly id: number; readonly address: string };
  readonly protocol_type: string;
  readonly assignor: string | null;
  readonly members: readonly Member[];
  readonly offsets: readonly GroupOffset[];
  readonly lag: number | null;
  readonly events: readonly HistoryEvent[];
}

/** `avro`: decoded, shown as JSON; `bytes`: base64. */
export type Form = "text" | "json" | "avro" | "bytes" | "null";

export interface Header {
  readonly key: string;
  readonly value: string | null;
  readonly form: Form;
}

export interface LogRecord {
  readonly offset: number;
  /** Negative: the record has none. */
  readonly at_ms: number;
  /** `CreateTime` or `LogAppendTime`. */
  readonly timestamp_type: string;
  readonly key: string | null;
  readonly key_form: Form;
  readonly value: string | null;
  readonly form: Form;
  /** The id in the prefix of a value that was written with a schema registry. */
  readonly schema_id: number | null;
  readonly headers: readonly Header[];
  readonly size: number;
  readonly epoch: number;
  readonly truncated?: boolean;
  readonly control?: string | null;
}

export interface Batch {
  readonly base_offset: number;
  readonly last_offset: number;
  readonly leader_epoch: number;
  readonly producer_id: number;
  readonly producer_epoch: number;
  readonly base_sequence: number;
  readonly codec: string;
  readonly bytes: number;
  readonly records: number;
  readonly control: boolean;
  /** Null: not part of a transaction. `open`: not decided, or behind an older one that is not. */
  readonly transaction: "committed" | "aborted" | "open" | null;
}

export interface RecordsPage {
  readonly log_start_offset?: number;
  readonly high_watermark?: number;
  readonly batches: readonly Batch[];
  readonly records: readonly LogRecord[];
  readonly next_offset: number;
}

export type MarkKind =
  | "leader" | "isr" | "unclean" | "loss" | "broker" | "group" | "other"
  /** Only in files: a step of the model checker, a fault, a broken invariant. */
  | "step" | "fault" | "broken";

export interface Timeline {
  readonly from_ms: number | null;
  readonly to_ms: number | null;
  readonly marks: readonly { readonly at_ms: number; readonly kind: MarkKind; readonly text: string }[];
}
