/** The brokers that a lesson starts: a cluster of its own, which the backend stops after the lesson. */
import { getJson, postJson } from "../api/http";

const AGAIN_MS = 5_000;

interface LessonState {
  /** Whether the console was started with --allow-actions. */
  readonly allowed: boolean;
  readonly state: "none" | "starting" | "running";
  readonly lesson: number | null;
}

/** Asks while a lesson is open: the backend stops brokers that no page asks for. */
export class LessonBrokers {
  /** Null until the server responds. */
  state = $state.raw<LessonState | null>(null);
  /** Starting or stopping now. */
  busy = $state(false);
  readonly #lesson: number;

  /** Call while a component is initialised. */
  constructor(lesson: number) {
    this.#lesson = lesson;
    $effect(() => {
      void this.#load();
      const timer = setInterval(() => void this.#load(), AGAIN_MS);
      return () => {
        clearInterval(timer);
        if (this.running || this.busy) void this.#send("stop").catch(() => {});
      };
    });
  }

  get running(): boolean {
    return this.state?.state === "running" && this.state.lesson === this.#lesson;
  }

  /** Start three brokers. Throws RequestFailed. */
  start(): Promise<void> {
    return this.#change("start");
  }

  /** Stop them. Throws RequestFailed. */
  stop(): Promise<void> {
    return this.#change("stop");
  }

  async #change(what: "start" | "stop"): Promise<void> {
    this.busy = true;
    try {
      this.state = await this.#send(what);
    } finally {
      this.busy = false;
    }
  }

  #send(what: "start" | "stop"): Promise<LessonState> {
    return postJson<LessonState>(`/api/lesson/${what}`, { lesson: this.#lesson });
  }

  async #load(): Promise<void> {
    try {
      const found = await getJson<LessonState>("/api/lesson");
      if (!this.busy) this.state = found;
    } catch {
      this.state = null;
    }
  }
}
