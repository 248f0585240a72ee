/** The history that the time bar shows: its span and marks, steps between marks, and playing. */
import type { Timeline } from "../api/types";
import { loadTimeline, session } from "../state/session.svelte";
import { moment } from "../state/moment.svelte";

const RELOAD_MS = 5_000;
const FRAME_MS = 100;
/** Playing begins so long before the present. */
const LAST_MS = 60_000;

export const SPEEDS = [0.25, 1, 4, 16, 64] as const;

/** How long a file is played at least, if a speed allows it: a story's run lasts two seconds of virtual time. */
const FILE_MS = 10_000;

/** Return the speed at which a file of this length is played until a person chooses another. */
export function speedOfFile(lengthMs: number): number {
  return SPEEDS.findLast((speed) => lengthMs / speed >= FILE_MS) ?? SPEEDS[0];
}

class TimeTravel {
  timeline = $state.raw<Timeline>({ from_ms: null, to_ms: null, marks: [] });
  /** Whether the timeline was read. */
  loaded = $state(false);
  playing = $state(false);
  speed = $state<number>(4);
  /** The time now, so that the bar moves on while live. */
  now = $state(Date.now());
  #topic: string | null = null;
  #partition: string | null = null;

  constructor() {
    setInterval(() => (this.now = Date.now()), 1_000);
    setInterval(() => {
      if (!document.hidden) void this.#load();
    }, RELOAD_MS);
    setInterval(() => this.#advance(), FRAME_MS);
  }

  /** Whether there is a history to go back to. */
  get available(): boolean {
    return this.timeline.from_ms !== null && this.timeline.to_ms !== null;
  }

  /** The newest moment: now, or the last one of a file. Times of a simulator's file begin at 0. */
  get end(): number {
    const last = this.timeline.to_ms ?? 0;
    return session.isFile ? last : Math.max(last, this.now);
  }

  /** Show marks of this partition, topic, or of the whole cluster. */
  about(topic: string | null, partition: string | null): void {
    this.#topic = topic;
    this.#partition = partition;
    void this.#load();
  }

  async #load(): Promise<void> {
    const [topic, partition] = [this.#topic, this.#partition];
    try {
      const found = await loadTimeline(topic, partition);
      if (topic === this.#topic && partition === this.#partition) this.timeline = found;
      this.loaded = true;
    } catch {
      // the header shows that the server does not respond
    }
  }

  /** Read the marks again, because something has just happened. */
  refresh(): void {
    if (this.loaded) void this.#load();
  }

  /** Go to the mark before or after the shown moment. */
  async step(direction: -1 | 1): Promise<void> {
    // The last mark may be of an election a second ago.
    if (moment.at === null) await this.#load();
    if (!this.available) return;
    const at = moment.at ?? Number.POSITIVE_INFINITY;
    const times = this.timeline.marks.map((mark) => mark.at_ms).sort((a, b) => a - b);
    const next = direction < 0 ? times.findLast((time) => time < at) : times.find((time) => time > at);
    if (next !== undefined) moment.show(next);
    else if (direction > 0) this.live();
    else if (this.timeline.from_ms !== null) moment.show(this.timeline.from_ms);
  }

  live(): void {
    this.playing = false;
    moment.show(null);
  }

  togglePlay(): void {
    if (!this.available) return;
    this.playing = !this.playing;
    if (this.playing && moment.at === null && this.timeline.from_ms !== null) {
      moment.show(session.isFile ? this.timeline.from_ms : Math.max(this.timeline.from_ms, this.end - LAST_MS));
    }
  }

  #advance(): void {
    if (!this.playing || moment.at === null) return;
    const next = moment.at + FRAME_MS * this.speed;
    if (next >= (this.timeline.to_ms ?? Date.now())) this.live();
    else moment.show(next);
  }
}

export const timeTravel = new TimeTravel();
