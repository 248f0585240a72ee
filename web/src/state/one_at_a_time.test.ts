import { expect, test } from "vitest";
import { OneAtATime } from "./one_at_a_time";

test("the newest load follows the running one; those between are dropped", async () => {
  const loads = new OneAtATime();
  const began: number[] = [];
  const ends = new Map<number, () => void>();
  const load = (n: number) => () => {
    began.push(n);
    return new Promise<void>((resolve) => ends.set(n, resolve));
  };
  for (const n of [1, 2, 3]) loads.push(load(n));
  expect(began).toEqual([1]);
  expect(loads.hasNewer).toBe(true);
  ends.get(1)?.();
  await new Promise((resolve) => setTimeout(resolve));
  expect(began).toEqual([1, 3]);
  expect(loads.hasNewer).toBe(false);
  ends.get(3)?.();
  await new Promise((resolve) => setTimeout(resolve));
  loads.push(load(4));
  expect(began).toEqual([1, 3, 4]);
});
