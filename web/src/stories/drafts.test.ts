import { expect, test } from "vitest";
import { Drafts, type DraftStorage } from "./drafts";

/** Storage in memory. */
function memory(): DraftStorage {
  const kept = new Map<string, string>([["tidelog-theme", "dark"]]);
  return {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => void kept.set(key, value),
    removeItem: (key) => void kept.delete(key),
    key: (n) => [...kept.keys()][n] ?? null,
    get length() {
      return kept.size;
    },
  };
}

test("a text is kept until it is reset", () => {
  const storage = memory();
  const drafts = new Drafts(() => storage);
  drafts.write("a/b", "mine");
  expect(new Drafts(() => storage).read("a/b")).toBe("mine");
  expect([...drafts.names()]).toEqual(["a/b"]);
  drafts.write("a/b", null);
  expect(drafts.read("a/b")).toBeNull();
  expect(drafts.names().size).toBe(0);
});

test("only some texts are kept, and other entries stay", () => {
  const storage = memory();
  const drafts = new Drafts(() => storage);
  for (let n = 0; n < 30; n++) drafts.write(`story/${n}`, String(n));
  expect(drafts.names().size).toBe(20);
  expect(drafts.read("story/29")).toBe("29");
  expect(drafts.read("story/0")).toBeNull();
  expect(storage.getItem("tidelog-theme")).toBe("dark");
});

test("damaged entries and forbidden storage are no error", () => {
  const storage = memory();
  storage.setItem("tidelog-draft:a", "{");
  storage.setItem("tidelog-draft:b", '{"text": 7}');
  const drafts = new Drafts(() => storage);
  expect([drafts.read("a"), drafts.read("b")]).toEqual([null, null]);
  const forbidden = new Drafts(() => {
    throw new Error("SecurityError");
  });
  forbidden.write("a", "b");
  expect(forbidden.read("a")).toBeNull();
  expect(forbidden.names().size).toBe(0);
});
