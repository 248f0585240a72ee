/** The changed texts of stories, kept by the browser until they are reset. */

const PREFIX = "tidelog-draft:";
const DRAFTS_MAX = 20;

/** The part of localStorage that is used. */
export type DraftStorage = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

interface Draft {
  readonly text: string;
  readonly atMs: number;
}

/** Browsers may forbid storage: then nothing is kept. */
export class Drafts {
  readonly #storage: () => DraftStorage;

  constructor(storage: () => DraftStorage = () => localStorage) {
    this.#storage = storage;
  }

  /** Return the changed text of a story (`folder/name`), or null. */
  read(story: string): string | null {
    return this.#read(PREFIX + story)?.text ?? null;
  }

  /** Keep a text; null forgets it. The oldest is forgotten if there are too many. */
  write(story: string, text: string | null): void {
    try {
      const storage = this.#storage();
      if (text === null) {
        storage.removeItem(PREFIX + story);
        return;
      }
      const others = this.#keys().filter((key) => key !== PREFIX + story);
      const byAge = others.map((key) => [this.#read(key)?.atMs ?? 0, key] as const).sort(([a], [b]) => a - b);
      for (const [, key] of byAge.slice(0, Math.max(0, others.length - DRAFTS_MAX + 1))) storage.removeItem(key);
      const draft: Draft = { text, atMs: Date.now() };
      storage.setItem(PREFIX + story, JSON.stringify(draft));
    } catch {
      // forbidden or full
    }
  }

  /** Return the stories with a changed text. */
  names(): ReadonlySet<string> {
    try {
      return new Set(this.#keys().map((key) => key.slice(PREFIX.length)));
    } catch {
      return new Set();
    }
  }

  #keys(): string[] {
    const storage = this.#storage();
    const keys = Array.from({ length: storage.length }, (_, n) => storage.key(n) ?? "");
    return keys.filter((key) => key.startsWith(PREFIX));
  }

  #read(key: string): Draft | null {
    try {
      const found: unknown = JSON.parse(this.#storage().getItem(key) ?? "null");
      if (typeof found !== "object" || found === null) return null;
      const { text, atMs } = found as Partial<Draft>;
      return typeof text === "string" ? { text, atMs: typeof atMs === "number" ? atMs : 0 } : null;
    } catch {
      return null;
    }
  }
}

export const drafts = new Drafts();
