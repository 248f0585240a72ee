import { describe, expect, it } from "vitest";
import { epochAt, epochClass, epochRanges } from "./epochs";
import { cellWidth, offsetAt, position, scale, showsCells, tailWindow, ticks } from "./scale";

it("has a positive width before the container is laid out", () => {
  expect(cellWidth(scale({ from: 0, to: 4 }, 8, -12))).toBeGreaterThan(0);
});

describe("scale", () => {
  const s = scale({ from: 10, to: 20 }, 100, 300);
  it("maps offsets to pixels and back", () => {
    expect(position(s, 15)).toBe(200);
    expect(offsetAt(s, 201)).toBe(15);
    expect(offsetAt(s, 5)).toBe(10);
    expect(offsetAt(s, 999)).toBe(19);
  });
  it("shows cells only while they are wide enough", () => {
    expect(showsCells(s)).toBe(true);
    expect(showsCells(scale({ from: 0, to: 1000 }, 0, 300))).toBe(false);
  });
  it("never has more ticks than asked for, and round ones", () => {
    expect(ticks(scale({ from: 0, to: 1_000_000 }, 0, 500), 5)).toEqual([0, 200_000, 400_000, 600_000, 800_000]);
    expect(ticks(scale({ from: 3, to: 7 }, 0, 500), 10)).toEqual([3, 4, 5, 6]);
  });
});

describe("tailWindow", () => {
  it("contains every gap", () => {
    const span = tailWindow([990_000, 1_000_000], 0, null);
    expect(span.from).toBeLessThan(990_000);
    expect(span.to).toBeGreaterThan(1_000_000);
  });
  it("shows a short log from its start", () => {
    expect(tailWindow([3, 3], 0, null)).toEqual({ from: 0, to: 16 });
  });
  it("keeps its size while a gap opens and closes", () => {
    const wide = tailWindow([1000, 1060], 0, null);
    const closed = tailWindow([1060, 1060], 0, tailWindow([1000, 1030], 0, null));
    expect(wide.to - wide.from).toBe(128);
    expect(closed.to - closed.from).toBe(64);
  });
});

describe("epochRanges", () => {
  it("ends each epoch where the next begins", () => {
    expect(epochRanges([[0, 0], [2, 5]], 0, 9)).toEqual([
      { epoch: 0, start: 0, end: 5 },
      { epoch: 2, start: 5, end: 9 },
    ]);
  });
  it("begins at the log start and leaves out epochs without records", () => {
    expect(epochRanges([[0, 0], [1, 4], [2, 9]], 6, 9)).toEqual([{ epoch: 1, start: 6, end: 9 }]);
  });
  it("draws unknown epochs", () => {
    expect(epochRanges(null, 0, 3)).toEqual([{ epoch: -1, start: 0, end: 3 }]);
    expect(epochRanges([[3, 2]], 0, 3)[0]).toEqual({ epoch: -1, start: 0, end: 2 });
    expect(epochRanges([[0, 0]], 0, null)).toEqual([]);
  });
  it("finds the epoch of an offset, and a colour for any epoch", () => {
    expect(epochAt(epochRanges([[0, 0], [2, 5]], 0, 9), 5)).toBe(2);
    expect(epochAt([], 1)).toBeNull();
    expect(epochClass(9)).toBe("epoch-1");
  });
});
