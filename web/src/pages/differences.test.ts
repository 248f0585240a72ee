import { expect, it } from "vitest";
import type { Difference } from "../api/types";
import { isEmpty, membersText, valueText } from "./differences";

const NOTHING: Difference = {
  from_ms: 0,
  to_ms: 1,
  brokers: [],
  controller: null,
  topics: { created: [], deleted: [], changed: [], written: [] },
  groups: null,
  partitions: [],
  partitions_changed: 0,
  events: {},
  losses: [],
};

it("shows every kind of value", () => {
  expect(valueText(null)).toBe("none");
  expect(valueText([])).toBe("none");
  expect(valueText([1, 2])).toBe("1, 2");
  expect(valueText("Stable")).toBe("Stable");
  expect(valueText(1234)).toBe("1,234");
  expect(valueText({ adding: [4], removing: [] })).toBe("adds 4, removes none");
});

it("counts members that joined and left", () => {
  const change = { what: "members", before: ["a", "b"], after: ["b", "c", "d"] };
  expect(membersText(change)).toBe("2 members → 3 (2 joined, 1 left)");
});

it("is empty only if no part differs", () => {
  expect(isEmpty(NOTHING)).toBe(true);
  expect(isEmpty({ ...NOTHING, groups: { created: [], deleted: [], changed: [], groups_changed: 0 } })).toBe(true);
  expect(isEmpty({ ...NOTHING, groups: { created: ["g"], deleted: [], changed: [], groups_changed: 0 } })).toBe(false);
  expect(isEmpty({ ...NOTHING, topics: { ...NOTHING.topics, changed: [{ topic: "t", changes: [] }] } })).toBe(false);
});
