import { describe, expect, it } from "vitest";
import { coordinatorOf, extent, firstStep, fitted, laneOf, messagesOf, missing, numbered, outsiders, paragraphs, proseAt, stateAt, windowOf } from "./playing";
import type { Entry, FrameData, PrintedLine, ReplicaData, StepData, StoryData } from "./types";

function replica(name: string, log: readonly Entry[], more: Partial<ReplicaData> = {}): ReplicaData {
  return {
    name, role: "follower", topic: "story", internal: false, leads: false, last_stable_offset: null, alive: true, assigned: true, in_isr: true, in_elr: false, leader_epoch: 0,
    log_start_offset: 0, log_end_offset: log.length, high_watermark: 0, epochs: [[0, 0]], log, omitted: 0, ...more,
  };
}
function frame(replicas: readonly ReplicaData[], more: Partial<FrameData> = {}): FrameData {
  return { lines: [], problems: [], replicas, registration: { leader: "A", leader_epoch: 0, isr: ["A", "B"], elr: [] }, lost: [], ...more };
}
function step(line: number, frames: Record<string, FrameData>, more: Partial<StepData> = {}): StepData {
  return { line, command: `step ${line}`, given: false, checks: false, prose: [], differs: false, frames, ...more };
}
function story(steps: readonly StepData[]): StoryData {
  return {
    name: "n", folder: "f", title: "t", prose: [], closing: [], covers: [], policies: ["leader-epoch"], text: "", passed: true,
    parts_at: null, legend: [], verdicts: [], problems: [], steps,
  };
}
const M1: Entry = [0, 0, "m1"];
const M2: Entry = [1, 0, "m2"];
const M3: Entry = [1, 1, "m3"];
const sent = (from: string, to: string, mark: PrintedLine["mark"] = ""): PrintedLine => ({ text: "x", from, to, mark });

describe("what changed in a step", () => {
  it("marks a record that is new, and one that was dropped", () => {
    const grown = laneOf(replica("B", [M1, M2]), frame([]), replica("B", [M1]));
    expect(grown.marks).toMatchObject([{ kind: "new", start: 1, end: 2 }]);
    const cut = laneOf(replica("B", [M1]), frame([]), replica("B", [M1, M2]));
    expect(cut.marks).toMatchObject([{ kind: "lost", start: 1, end: 2, text: "m2@0 was dropped in this step" }]);
  });
  it("shows a replaced record as the new one", () => {
    expect(missing([M1, M3], [M1, M2])).toEqual([M3]);
    expect(laneOf(replica("B", [M1, M3]), frame([]), replica("B", [M1, M2])).marks).toMatchObject([{ kind: "new" }]);
  });
  it("crosses a lost record out in the leader's lane, once", () => {
    const lost = frame([], { lost: [M2] });
    expect(laneOf(replica("A", [M1], { leads: true }), lost, undefined).marks).toMatchObject([{ kind: "lost", start: 1 }]);
    expect(laneOf(replica("A", [M1], { leads: true }), lost, replica("A", [M1, M2])).marks).toHaveLength(1);
    expect(laneOf(replica("B", [M1]), lost, undefined).marks).toEqual([]);
    expect(laneOf(replica("A", [M1, M3], { leads: true }), lost, undefined).marks).toEqual([]);
  });
  it("writes record@epoch into cells, and says who leads and who is down", () => {
    const lane = laneOf(replica("A", [M1], { alive: false, leads: true }), frame([]), undefined);
    expect(lane.records?.[0]?.text).toBe("m1@0");
    expect([lane.leads, lane.state, lane.note]).toEqual([true, "down", "down, LEO 1"]);
  });
});

describe("steps", () => {
  const told = story([
    step(1, { r: frame([replica("A", [M1])]) }, { given: true, prose: ["first"] }),
    step(2, {}),
    step(3, { r: frame([]) }, { prose: ["third"] }),
  ]);
  it("keeps the last state where a rule has no frame, or its step failed", () => {
    expect(stateAt(told, "r", 2)?.step).toBe(0);
    expect(stateAt(told, "other", 2)).toBeNull();
  });
  it("keeps the prose until the next", () => {
    expect(proseAt(told, 1)).toEqual(["first"]);
    expect(proseAt(told, 2)).toEqual(["third"]);
  });
  it("begins after the given steps", () => {
    expect(firstStep(told)).toBe(1);
    expect(firstStep(story([step(1, {}, { given: true })]))).toBe(0);
  });
  it("numbers messages, not events", () => {
    const lines = [sent("B", "A"), { text: "A HW 0 -> 1", from: "", to: "", mark: "" as const }, sent("A", "B", "lost")];
    expect(messagesOf(frame([], { lines })).map((each) => each.number)).toEqual([1, 2]);
    expect(numbered(frame([], { lines })).map((each) => each.number)).toEqual([1, null, 2]);
    expect(messagesOf(undefined)).toEqual([]);
  });
  it("finds who takes part, and how much there is to draw", () => {
    const lines = [sent("client", "A")];
    const found = story([step(1, { r: frame([replica("A", [M1, [1, 0, "a-long-record"]])], { lines }) })]);
    expect(outsiders(found)).toEqual({ clients: ["client"], controller: false });
    expect(extent(found)).toEqual({ end: 2, letters: 12 });
  });
});

describe("the window", () => {
  it("is the whole log if it fits, else its end", () => {
    expect(windowOf(3, 10, 2)).toEqual({ from: 0, to: 4 });
    expect(windowOf(100, 10, 40)).toEqual({ from: 31, to: 41 });
    expect(windowOf(100, 10, 2)).toEqual({ from: 0, to: 10 });
    expect(windowOf(1, 0, 1)).toEqual({ from: 0, to: 4 });
  });
});

describe("paragraphs", () => {
  it("joins lines, and separates at empty ones", () => {
    expect(paragraphs(["", "one", "two", "", "", "three", ""])).toEqual(["one two", "three"]);
  });
});

describe("stories about transactions", () => {
  const log: Entry[] = [[0, 0, "Empty(t)"], [1, 0, "Ongoing(t)"], [2, 0, "PrepareCommit(t)"]];
  const coordinator = replica("C", log, { topic: "__transaction_state", internal: true, leads: true });

  it("draws producers and consumers as parties of their own, above the logs", () => {
    const lines = [sent("p1", "A"), sent("A", "C"), sent("c1", "C"), sent("", "")];
    const found = story([step(1, { r: frame([replica("A", [M1]), coordinator], { lines }) })]);
    expect(outsiders(found)).toEqual({ clients: ["c1", "p1"], controller: false });
  });
  it("does not scale the offsets of replicas by the log of a coordinator", () => {
    const found = story([step(1, { r: frame([replica("A", [M1]), coordinator]) })]);
    expect(extent(found)).toEqual({ end: 1, letters: 4 });
    const ended = story([step(1, { r: frame([replica("A", [M1, [1, 0, "commit(0)"]])]) })]);
    expect(extent(ended)).toEqual({ end: 2, letters: 6 });
  });
  it("frames the states that a coordinator wrote in this step", () => {
    const drawn = coordinatorOf(coordinator, replica("C", log.slice(0, 2)));
    expect(drawn.records.map((record) => record.isNew)).toEqual([false, false, true]);
    expect([drawn.of, drawn.leads]).toEqual(["transactions", true]);
    expect(coordinatorOf(coordinator, undefined).records.some((record) => record.isNew)).toBe(false);
  });
  it("shows the newest states that fit, and how many do not", () => {
    const records = coordinatorOf(coordinator, undefined).records;
    expect(fitted(records, 1000)).toMatchObject({ hidden: 0, shown: [{ x: 0 }, {}, {}] });
    const narrow = fitted(records, 160);
    expect([narrow.hidden, narrow.shown.map((each) => each.record.text)]).toEqual([2, ["PrepareCommit(t)"]]);
    const end = fitted(records, 300).shown.at(-1);
    expect((end?.x ?? 0) + (end?.width ?? 0)).toBeLessThanOrEqual(300);
  });
  it("draws a marker apart from records, with a short text for narrow cells", () => {
    const lane = laneOf(replica("A", [M1, [1, 0, "abort(0)"]]), frame([]), undefined);
    expect(lane.records?.map((each) => [each.text, each.short, each.marker])).toEqual([
      ["m1@0", undefined, undefined],
      ["abort(0)@0", "abort", true],
    ]);
  });
  it("names the last stable offset below a replica, and marks it", () => {
    const lane = laneOf(replica("A", [M1, M2], { high_watermark: 2, last_stable_offset: 0 }), frame([]), undefined);
    expect([lane.note, lane.lastStable]).toEqual(["HW 2, LSO 0", 0]);
  });
  it("crowns the leader of the replica's own partition", () => {
    const other = replica("E", [M1], { topic: "other", leads: true });
    expect(laneOf(other, frame([]), undefined).leads).toBe(true);
  });
});
