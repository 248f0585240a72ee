import { expect, it } from "vitest";
import type { Overview, Problem } from "../api/types";
import { groupProblems } from "./problems";

const problem = (topic: string, partition: number): Problem => ({ topic, partition, kind: "offline", text: "no leader" });

it("makes one line of many problems of a topic", () => {
  const many = Array.from({ length: 150 }, (_, n) => problem("wide", n));
  const topics = [{ topic: "wide", offline: 666 }];
  const lines = groupProblems({ topics, problems: [problem("a/b", 1), ...many] } as unknown as Overview);
  expect(lines.map((line) => `${line.name}: ${line.text}`)).toEqual(["a/b/1: no leader", "wide: 666 partitions"]);
  expect(lines[0]?.href).toBe("/topics/a%2Fb/1");
});
