/** Events of many partitions at one moment, grouped: the death of a broker changes thousands. */
import type { HistoryEvent } from "../api/types";
import { number } from "../format";

export interface EventGroup {
  readonly key: string;
  readonly events: readonly HistoryEvent[];
  /** The group as a sentence; null for a single event. */
  readonly text: string | null;
}

const GROUPED_MIN = 4;
const SENTENCES: Readonly<Record<string, (n: string) => string>> = {
  isr_shrunk: (n) => `ISR shrank in ${n} partitions`,
  isr_expanded: (n) => `ISR grew in ${n} partitions`,
  leader_elected: (n) => `New leaders of ${n} partitions`,
  leadership_gained: (n) => `Became the leader of ${n} partitions`,
  leadership_lost: (n) => `No longer leads ${n} partitions`,
  truncated: (n) => `Truncated ${n} logs`,
};

/** Group events of one kind, broker and moment; the order stays that of the first event of each group. */
export function groupEvents(events: readonly HistoryEvent[]): EventGroup[] {
  const groups = new Map<string, HistoryEvent[]>();
  for (const event of events) {
    const key = `${event.at_ms} ${event.event} ${event.broker ?? ""}`;
    const known = groups.get(key);
    if (known === undefined) groups.set(key, [event]);
    else known.push(event);
  }
  return [...groups].flatMap(([key, members]): EventGroup[] => {
    const first = members[0];
    if (first === undefined || members.length < GROUPED_MIN) {
      return members.map((event, n) => ({ key: `${key} ${n}`, events: [event], text: null }));
    }
    const sentence = SENTENCES[first.event];
    const text = sentence?.(number(members.length)) ?? `${number(members.length)} × ${first.event.replaceAll("_", " ")}`;
    return [{ key, events: members, text }];
  });
}
