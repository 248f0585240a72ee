import { expect, it } from "vitest";
import { bytes, compact, count, duration, number } from "./format";
import { matchPath, path } from "./router/match";

it("formats numbers", () => {
  expect(number(1234567)).toBe("1,234,567");
  expect(number(null)).toBe("–");
  expect(compact(999)).toBe("999");
  expect(compact(0.25)).toBe("0.3");
  expect(compact(1234)).toBe("1.2 k");
  expect(compact(999_700)).toBe("1.0 M");
  expect(compact(12_345_678)).toBe("12 M");
  expect(bytes(259)).toBe("259 B");
  expect(bytes(1_572_864)).toBe("1.5 MiB");
  expect(count(1, "replica")).toBe("1 replica");
  expect(count(1200, "partition")).toBe("1,200 partitions");
});

it("formats durations", () => {
  expect(duration(12)).toBe("12 ms");
  expect(duration(3_400)).toBe("3.4 s");
  expect(duration(300_000)).toBe("5 min");
  expect(duration(null)).toBe("–");
});

it("matches paths and decodes their parameters", () => {
  expect(matchPath("/topics/:topic/:partition", "/topics/orders/0")).toEqual({ topic: "orders", partition: "0" });
  expect(matchPath("/topics/:topic", "/topics/a%2Fb%3Cscript%3E")).toEqual({ topic: "a/b<script>" });
  expect(matchPath("/topics/:topic", "/topics/%E0%A4%A")).toBeNull();
  expect(matchPath("/", "/")).toEqual({});
  expect(matchPath("/topics", "/topics/x")).toBeNull();
  expect(path("groups", "a/b c", 0)).toBe("/groups/a%2Fb%20c/0");
});
