/**
 * A resource of the backend: live by a stream, or as it was at the chosen moment.
 *
 * The stream is read with fetch, not EventSource: so that a refusal's reason is seen (404, 503), a server that
 * hangs is noticed by its missing comments, and the page decides when to retry. A hidden tab has no stream, because
 * browsers allow only six connections to a server.
 */
import { RequestFailed, UNREACHABLE, failureOf, getJson } from "../api/http";
import type { Failure } from "../api/types";
import { connection, type Status } from "./connection.svelte";
import { moment } from "./moment.svelte";
import { OneAtATime } from "./one_at_a_time";
import { EventParser } from "./sse";

const SILENCE_MS = 25_000;
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 5_000;
const SCRUB_MS = 60;
const RETRY_PAST_MS = 1_000;

export interface Options {
  /** Its connection is not shown in the header. */
  readonly quiet?: boolean;
  /** It has no history. */
  readonly alwaysLive?: boolean;
}

export class Resource<T extends { at_ms: number }> {
  /** The last data; it stays while the connection is lost. */
  data = $state.raw<T | null>(null);
  /** Why there is no newer data. */
  failure = $state.raw<Failure | null>(null);
  status = $state<Status>("connecting");
  #path = "";
  readonly #quiet: boolean;

  /** Call while a component is initialised; `path` is reactive. */
  constructor(path: () => string, { quiet = false, alwaysLive = false }: Options = {}) {
    this.#quiet = quiet;
    const live = $derived(alwaysLive || moment.at === null);
    $effect(() => {
      const wanted = path();
      if (wanted !== this.#path) {
        this.#path = wanted;
        this.data = null;
        this.failure = null;
      }
      const stop = new AbortController();
      this.#set("connecting");
      if (live) {
        void this.#follow(wanted, stop.signal);
      } else {
        const requests = new OneAtATime();
        $effect(() => {
          const at = moment.at;
          if (at !== null) requests.push(() => this.#readPast(wanted, at, requests, stop.signal));
        });
      }
      return () => stop.abort();
    });
  }

  #set(status: Status): void {
    this.status = status;
    if (!this.#quiet) connection.status = status;
  }

  #accept(data: T, status: Status): void {
    this.data = data;
    this.failure = null;
    if (!this.#quiet) connection.atMs = data.at_ms;
    if (this.status !== status || connection.status !== status) this.#set(status);
  }

  #fail(failure: Failure): void {
    this.failure = failure;
    // A missing topic is an answer; everything else means that newer state is unknown.
    this.#set(failure.status === undefined ? "lost" : "failed");
    if (failure.status === 404) this.data = null;
  }

  /** While the moment moves, a response is shown although a newer moment is wanted: else a slow one would never be. */
  async #readPast(path: string, at: number, requests: OneAtATime, signal: AbortSignal): Promise<void> {
    await pause(SCRUB_MS, signal);
    while (!signal.aborted && !requests.hasNewer) {
      try {
        this.#accept(await getJson<T>(`/api/${path}?at=${at}`, signal), "past");
        return;
      } catch (error) {
        if (signal.aborted) return;
        this.#fail(error instanceof RequestFailed ? error.failure : UNREACHABLE);
        if (error instanceof RequestFailed && error.failure.status === 404) return;
        await pause(RETRY_PAST_MS, signal);
      }
    }
  }

  async #follow(path: string, signal: AbortSignal): Promise<void> {
    let wait = RETRY_MIN_MS;
    while (!signal.aborted) {
      await visible(signal);
      if (signal.aborted) return;
      const heard = await this.#readStream(path, signal);
      if (signal.aborted) return;
      if (document.hidden) continue;
      wait = heard ? RETRY_MIN_MS : Math.min(wait * 2, RETRY_MAX_MS);
      await pause(wait, signal);
    }
  }

  /** Read a stream until it ends; return whether it delivered anything. */
  async #readStream(path: string, signal: AbortSignal): Promise<boolean> {
    const own = new AbortController();
    const end = (): void => own.abort();
    const onHidden = (): void => {
      if (document.hidden) end();
    };
    signal.addEventListener("abort", end);
    document.addEventListener("visibilitychange", onHidden);
    let silence = setTimeout(end, SILENCE_MS);
    let heard = false;
    try {
      const response = await fetch(`/api/live/${path}`, { signal: own.signal });
      if (!response.ok || response.body === null) {
        this.#fail(await failureOf(response));
        return false;
      }
      const parser = new EventParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_MS);
        const messages = parser.push(value);
        for (const message of messages.slice(-1)) {
          heard = true;
          if (message.event === "error") this.#fail(JSON.parse(message.data) as Failure);
          else this.#accept(JSON.parse(message.data) as T, "live");
        }
      }
      if (!signal.aborted && !document.hidden) this.#fail(UNREACHABLE);
    } catch {
      if (!signal.aborted && !document.hidden) this.#fail(UNREACHABLE);
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", end);
      document.removeEventListener("visibilitychange", onHidden);
    }
    return heard;
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Wait until the tab is visible. */
function visible(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const check = (): void => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      resolve();
    };
    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check);
  });
}
