import { expect, test } from "vitest";
import { lanesAt, marksOf, placeOf } from "./lanes";
import type { Run } from "./types";

const run: Run = {
  brokers: [1, 2],
  moments: [
    { at_s: 0, leader: 1, epoch: 0, isr: [1, 2], logs: [[10, 8, [[0, 0]]], [9, 8, [[0, 0]]]] },
    { at_s: 1, leader: 2, epoch: 1, isr: [2], logs: [null, [12, 12, [[0, 0], [1, 9]]]] },
  ],
  marks: [],
};

test("a broker that is down keeps its last log", () => {
  const [dead, leader] = lanesAt(run, 1);
  expect(dead).toMatchObject({ end: 10, highWatermark: 8, state: "down", leads: false, inIsr: false, note: "down" });
  expect(leader).toMatchObject({ end: 12, leads: true, inIsr: true, state: "ok", note: "LEO 12" });
  expect(leader?.epochs).toEqual([
    { epoch: 0, start: 0, end: 9 },
    { epoch: 1, start: 9, end: 12 },
  ]);
});

test("the gap of the replicas in sync is in view", () => {
  expect(marksOf(lanesAt(run, 0))).toEqual([10, 8, 9, 8]);
  expect(marksOf(lanesAt(run, 1))).toEqual([12, 12]);
  expect(lanesAt(run, 7)).toEqual([]);
});

test("a time shows the moment before it", () => {
  expect([placeOf(run, -1), placeOf(run, 0.9), placeOf(run, 1), placeOf(run, 9)]).toEqual([0, 0, 1, 1]);
});
