/** What the backend says about itself, and the timeline of its history. */
import { getJson } from "../api/http";
import type { Session, Timeline } from "../api/types";

const AGAIN_MS = 10_000;
const RETRY_MS = 2_000;

class SessionState {
  value = $state.raw<Session | null>(null);
  /** Whether the server did not respond to the last request. */
  lost = $state(false);

  constructor() {
    void this.#load();
  }

  async #load(): Promise<void> {
    let next = AGAIN_MS;
    try {
      if (!document.hidden) this.value = await getJson<Session>("/api/session");
      this.lost = false;
    } catch {
      this.lost = true;
      next = RETRY_MS;
    }
    setTimeout(() => void this.#load(), next);
  }

  /** Whether a file of a run that has ended is shown instead of a cluster. */
  get isFile(): boolean {
    return this.value !== null && this.value.source !== "cluster";
  }

  /** Whether buttons for this action are shown. */
  offers(action: string): boolean {
    const session = this.value;
    if (session === null || !session.allow_actions) return false;
    const listed = session.actions?.find((each) => each.name === action);
    return listed === undefined ? session.local || !LOCAL.has(action) : listed.offered;
  }

  /** Why an action is not offered; for titles. */
  reason(action: string): string | null {
    return this.value?.actions?.find((each) => each.name === action)?.reason ?? null;
  }
}

const LOCAL = new Set(["kill", "pause", "resume", "start", "isolate", "reconnect"]);

export const session = new SessionState();

/** Load the marks of the scrubber: of the whole cluster or of one partition. */
export function loadTimeline(topic: string | null, partition: string | null): Promise<Timeline> {
  const query = new URLSearchParams();
  if (topic !== null) query.set("topic", topic);
  if (partition !== null) query.set("partition", partition);
  return getJson<Timeline>(`/api/timeline?${query}`);
}
