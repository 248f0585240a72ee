import { expect, it } from "vitest";
import { compareKeys, visibleRows } from "./rows";

it("shows only rows near the window, in steps", () => {
  expect(visibleRows(100, 800, 40, 3000)).toEqual({ first: 0, last: 24 });
  expect(visibleRows(-40_000, 800, 40, 3000)).toEqual({ first: 992, last: 1024 });
  expect(visibleRows(-40_040, 800, 40, 3000)).toEqual({ first: 992, last: 1032 });
  expect(visibleRows(-1_000_000, 800, 40, 3000)).toEqual({ first: 3000, last: 3000 });
  expect(visibleRows(5000, 800, 40, 3)).toEqual({ first: 0, last: 0 });
});

it("sorts numbers, texts with numbers, and unknown values last", () => {
  expect(["t10", "t2", "t1"].sort((a, b) => compareKeys(a, b, false))).toEqual(["t1", "t2", "t10"]);
  expect([3, null, 10, 1].sort((a, b) => compareKeys(a, b, true))).toEqual([10, 3, 1, null]);
});
