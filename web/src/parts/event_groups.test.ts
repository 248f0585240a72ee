import { expect, it } from "vitest";
import type { HistoryEvent } from "../api/types";
import { groupEvents } from "./event_groups";
import { proseParts } from "./prose";

const event = (at_ms: number, name: string, partition: number): HistoryEvent => ({
  at_ms, level: "INFO", broker: null, event: name, text: `${name} ${partition}`, topic: "t", partition,
});

it("groups many events of one moment", () => {
  const many = [1, 2, 3, 4, 5].map((n) => event(10, "isr_shrunk", n));
  const groups = groupEvents([event(11, "leader_elected", 1), ...many, event(9, "isr_shrunk", 1)]);
  expect(groups.map((group) => group.text)).toEqual([null, "ISR shrank in 5 partitions", null]);
  expect(new Set(groups.map((group) => group.key)).size).toBe(3);
});

it("keeps few events apart", () => {
  expect(groupEvents([1, 2, 3].map((n) => event(10, "isr_shrunk", n)))).toHaveLength(3);
});

it("finds code between backticks", () => {
  expect(proseParts("type `tidelog up`.")).toEqual([
    { text: "type ", code: false },
    { text: "tidelog up", code: true },
    { text: ".", code: false },
  ]);
  expect(proseParts("a ` b")).toEqual([{ text: "a ` b", code: false }]);
});
