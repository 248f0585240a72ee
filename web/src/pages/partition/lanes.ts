/** A partition's data as lanes: epochs as ranges, and marks for what is lost, damaged or diverging. */
import type { Damage, Loss, PartitionPage, Replica, SeenLog } from "../../api/types";
import { epochRanges } from "../../drawing/epochs";
import type { LaneData, Mark } from "../../drawing/types";
import { count } from "../../format";

export interface ReplicaLane {
  readonly replica: Replica;
  readonly lane: LaneData;
  /** The log end that the leader knows; null if the leader does not know the follower. */
  readonly knownEnd: number | null;
  readonly lastFetchMsAgo: number | null;
  /** The offset from which the follower's fetch waits at the leader. */
  readonly waitsFrom: number | null;
  /** When the shown log was seen, if the broker does not respond now. */
  readonly seenAtMs: number | null;
}

/** A replica that responded, and when. */
export interface Seen {
  readonly replica: Omit<SeenLog, "at_ms">;
  readonly atMs: number;
}

/** The last response of each broker, so that the log of a dead one stays on the page. */
export class ReplicaMemory {
  #of = "";
  #seen: ReadonlyMap<number, Seen> = new Map();

  /** Note who responded; returns the last responses for this partition. */
  add(page: PartitionPage): ReadonlyMap<number, Seen> {
    const { topic, partition, replicas } = page.partition;
    const of = `${topic}/${partition}`;
    const responded = replicas.filter((replica) => replica.epochs !== null);
    const now = responded.map((replica) => [replica.broker, { replica, atMs: page.at_ms }] as const);
    this.#seen = new Map([...(of === this.#of ? this.#seen : []), ...now]);
    this.#of = of;
    return this.#seen;
  }
}

/** What the console saw of a broker before this page was opened, or before the chosen moment. */
function seenByServer(page: PartitionPage, broker: number): Seen | undefined {
  const found = page.last_seen?.find((each) => each.broker === broker);
  return found === undefined ? undefined : { replica: found, atMs: found.at_ms };
}

/** Build the lanes in the order of the assignment; `seen` has the last response of each broker. */
export function replicaLanes(page: PartitionPage, seen: ReadonlyMap<number, Seen>): ReplicaLane[] {
  const { partition } = page;
  const leader = partition.replicas.find((replica) => replica.broker === partition.leader);
  return partition.replicas.map((replica) => {
    const follower = page.followers.find((each) => each.broker === replica.broker);
    const silent = replica.epochs === null && replica.high_watermark === null;
    const before = silent ? (seen.get(replica.broker) ?? seenByServer(page, replica.broker)) : undefined;
    const log = before?.replica ?? replica;
    const start = log.log_start_offset ?? 0;
    const end = log.log_end_offset;
    const lane: LaneData = {
      name: `Broker ${replica.broker}`,
      start,
      end,
      highWatermark: log.high_watermark,
      lastStable: lastStable(log),
      // Kafka reports no log end: what is committed is there anyway.
      epochs: epochRanges(log.epochs, start, end ?? log.high_watermark),
      inIsr: partition.isr.includes(replica.broker),
      leads: replica.broker === partition.leader,
      state: replica.unreachable === null ? "ok" : "unreachable",
      marks: [
        ...divergence(log, leader),
        ...damages(log.damage, end),
        ...losses(partition.losses.filter((loss) => loss.broker === replica.broker)),
      ],
    };
    return {
      replica,
      lane,
      knownEnd: follower?.log_end_offset ?? null,
      lastFetchMsAgo: follower?.last_fetch_ms_ago ?? null,
      waitsFrom: follower?.waits_from ?? null,
      seenAtMs: before?.atMs ?? null,
    };
  });
}

/** The last stable offset, if an open transaction keeps it below the high watermark. */
function lastStable({ last_stable_offset: stable, high_watermark: hw }: Pick<Replica, "last_stable_offset" | "high_watermark">): number | null {
  return stable !== null && hw !== null && stable < hw ? stable : null;
}

/**
 * Mark the records that the leader does not have: the replica truncates them when it follows.
 *
 * Brokers respond one after another, so a replica may only seem ahead: with the same last epoch nothing is marked.
 */
export function divergence(replica: Omit<SeenLog, "at_ms">, leader: Replica | undefined): Mark[] {
  if (leader === undefined || leader.broker === replica.broker) return [];
  const [ours, theirs] = [entries(replica), entries(leader)];
  const last = ours.at(-1);
  if (last === undefined || theirs.length === 0 || replica.log_end_offset === null) return [];
  const same = theirs.at(-1);
  if (same !== undefined && same.epoch === last.epoch && same.start === last.start) return [];
  let shared = replica.log_start_offset ?? 0;
  for (const entry of ours) {
    const match = theirs.find((each) => each.epoch === entry.epoch && each.start === entry.start);
    if (match !== undefined) shared = Math.max(shared, Math.min(entry.end, match.end));
  }
  if (shared >= replica.log_end_offset) return [];
  const text = `${count(replica.log_end_offset - shared, "record")} that the leader does not have: will be truncated`;
  return [{ kind: "lost", start: shared, end: replica.log_end_offset, text }];
}

function entries(replica: Omit<SeenLog, "at_ms">): { epoch: number; start: number; end: number }[] {
  const end = replica.log_end_offset ?? 0;
  const known = (replica.epochs ?? []).filter(([, start]) => start < end);
  return known.map(([epoch, start], n) => ({ epoch, start, end: known[n + 1]?.[1] ?? end }));
}

function damages(damage: Damage | null, end: number | null): Mark[] {
  if (damage === null) return [];
  return [{ kind: "damaged", start: damage.offset, end: Math.max(end ?? 0, damage.offset + 1), text: damage.reason }];
}

function losses(found: readonly Loss[]): Mark[] {
  return found.flatMap((loss): Mark[] => {
    if (loss.start === undefined || loss.end === undefined || loss.end <= loss.start) return [];
    const text = `dropped offsets ${loss.start} to ${loss.end} (exclusive)`;
    return [{ kind: "lost", start: loss.start, end: loss.end, text }];
  });
}

/** The offsets between which the gaps of all lanes lie; a log far behind is left out. */
export function gapMarks(lanes: readonly ReplicaLane[]): number[] {
  const live = lanes.filter(({ lane }) => lane.leads || lane.inIsr);
  const chosen = live.some(({ lane }) => lane.end !== null) ? live : lanes;
  return chosen.flatMap(({ lane }) => [lane.end, lane.highWatermark].filter((offset) => offset !== null));
}

/** Whether and why records can be committed with acks=all. */
export function commitState(page: PartitionPage): { tone: "ok" | "warn" | "bad"; text: string } {
  const { leader, isr, min_isr: minIsr, replicas } = page.partition;
  if (leader === null) return { tone: "bad", text: "no leader: cannot be written or read" };
  const needed = minIsr === null ? null : Math.min(minIsr, replicas.length);
  if (needed !== null && isr.length < needed) {
    return { tone: "bad", text: `${isr.length} of ${needed} replicas needed in sync: acks=all is rejected` };
  }
  if (isr.length < replicas.length) return { tone: "warn", text: `${isr.length} of ${replicas.length} in sync` };
  return { tone: "ok", text: "all in sync" };
}
