/** The brokers' loss ledgers, read every few seconds; at an earlier moment, the entries up to it. */
import { getJson, RequestFailed } from "../api/http";
import type { Failure, LedgerEntry, LossesPage } from "../api/types";
import { moment } from "./moment.svelte";
import { session } from "./session.svelte";

const RELOAD_MS = 5_000;

export class Losses {
  /** Null: not loaded yet. */
  page = $state.raw<LossesPage | null>(null);
  failure = $state.raw<Failure | null>(null);
  /** Null: not known yet. A file has no ledgers. */
  #isFile = $derived(session.value === null ? null : session.isFile);

  /** `topic`: only its losses; null: all. Create it while a component is initialised. */
  constructor(topic: () => string | null) {
    $effect(() => {
      const wanted = topic();
      const stop = new AbortController();
      this.page = this.#isFile ? { losses: [], unread: {} } : null;
      if (this.#isFile !== false) return;
      void this.#load(wanted, stop.signal);
      const timer = setInterval(() => {
        if (!document.hidden) void this.#load(wanted, stop.signal);
      }, RELOAD_MS);
      return () => {
        stop.abort();
        clearInterval(timer);
      };
    });
  }

  /** The entries up to the chosen moment, newest first. */
  get shown(): readonly LedgerEntry[] {
    const at = moment.at;
    return (this.page?.losses ?? []).filter((each) => at === null || each.at_ms <= at).toReversed();
  }

  async #load(topic: string | null, signal: AbortSignal): Promise<void> {
    const query = topic === null ? "" : `?${new URLSearchParams({ topic })}`;
    try {
      this.page = await getJson<LossesPage>(`/api/losses${query}`, signal);
      this.failure = null;
    } catch (error) {
      if (!signal.aborted && error instanceof RequestFailed) this.failure = error.failure;
    }
  }
}
