import { expect, it } from "vitest";
import type { PartitionPage, Replica } from "../../api/types";
import { commitState, divergence, gapMarks, replicaLanes } from "./lanes";

function replica(broker: number, end: number | null, epochs: [number, number][] | null, hw: number | null = end): Replica {
  return {
    broker, address: null, role: "follower", in_isr: true, unreachable: end === null ? "no response" : null,
    log_start_offset: 0, log_end_offset: end, high_watermark: hw, last_stable_offset: hw, leader_epoch: 0, epochs,
    lag: 0, lag_ms: 0, out_for_ms: null, why_out: null, recovery_point: 0, size: 0, segments: 1, damage: null,
  };
}

function page(replicas: Replica[], leader: number | null, isr: number[]): PartitionPage {
  return {
    at_ms: 1, followers: [], pending_isr: null, explain: [], events: [],
    partition: {
      topic: "t", partition: 0, topic_id: null, leader, leader_epoch: 1, partition_epoch: 1, isr, elr: [], min_isr: 2,
      replicas, unclean_election: null, losses: [], lost: [],
    },
  };
}

it("marks records that the leader replaced", () => {
  const leader = replica(1, 12, [[0, 0], [2, 8]]);
  expect(divergence(replica(2, 10, [[0, 0], [1, 7]]), leader)).toMatchObject([{ kind: "lost", start: 7, end: 10 }]);
  expect(divergence(replica(2, 10, [[0, 0]]), leader)).toMatchObject([{ start: 8, end: 10 }]);
  expect(divergence(replica(2, 8, [[0, 0]]), leader)).toEqual([]);
});

it("does not mark a follower that only seems ahead", () => {
  expect(divergence(replica(2, 15, [[0, 0]]), replica(1, 12, [[0, 0]]))).toEqual([]);
});

it("keeps the last log of a broker that does not respond", () => {
  const before = replica(2, 9, [[0, 0]]);
  const lanes = replicaLanes(page([replica(1, 12, [[0, 0]]), replica(2, null, null)], 1, [1]), new Map([[2, { replica: before, atMs: 7 }]]));
  expect(lanes[1]?.lane).toMatchObject({ end: 9, inIsr: false, state: "unreachable" });
  expect(lanes[1]?.seenAtMs).toBe(7);
});

it("keeps the log that the console saw of a broker that was silent before the page was opened", () => {
  const silent = page([replica(1, 12, [[0, 0]]), replica(2, null, null)], 1, [1]);
  const log = { log_start_offset: 0, log_end_offset: 9, high_watermark: 8, last_stable_offset: 8, epochs: [[0, 0]] as [number, number][], damage: null };
  const lanes = replicaLanes({ ...silent, last_seen: [{ broker: 2, at_ms: 5, ...log }] }, new Map());
  expect(lanes[1]?.lane).toMatchObject({ end: 9, highWatermark: 8, state: "unreachable" });
  expect(lanes[1]?.seenAtMs).toBe(5);
});

it("shows where an open transaction stops consumers, and the fetch that waits", () => {
  const held = { ...replica(1, 12, [[0, 0]]), last_stable_offset: 4 };
  const follower = { broker: 2, log_end_offset: 12, last_fetch_ms_ago: 3, waits_from: 12, in_isr: true };
  const lanes = replicaLanes({ ...page([held, replica(2, 12, [[0, 0]])], 1, [1, 2]), followers: [follower] }, new Map());
  expect(lanes.map(({ lane }) => lane.lastStable)).toEqual([4, null]);
  expect(lanes.map(({ waitsFrom }) => waitsFrom)).toEqual([null, 12]);
});

it("draws the committed records of a cluster that reports no log ends", () => {
  const kafka = { ...replica(1, null, [[0, 0], [3, 5]], 9), unreachable: null };
  const [lane] = replicaLanes(page([kafka], 1, [1]), new Map());
  expect(lane?.lane).toMatchObject({ end: null, epochs: [{ start: 0, end: 5 }, { start: 5, end: 9 }] });
});

it("looks at the gaps of replicas in sync", () => {
  const lanes = replicaLanes(page([replica(1, 1000, [[0, 0]], 990), replica(2, 3, [[0, 0]])], 1, [1]), new Map());
  expect(gapMarks(lanes)).toEqual([1000, 990]);
});

it("says whether acks=all is accepted", () => {
  const one = replica(1, 1, [[0, 0]]);
  expect(commitState(page([one, one], null, []))).toMatchObject({ tone: "bad" });
  expect(commitState(page([one, one, one], 1, [1]))).toMatchObject({ tone: "bad" });
  expect(commitState(page([one, one, one], 1, [1, 2])).tone).toBe("warn");
  expect(commitState(page([one, one], 1, [1, 2])).tone).toBe("ok");
});
