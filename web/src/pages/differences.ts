/** The words and values of a comparison of two moments. */
import type { Change, Difference } from "../api/types";
import { count, number } from "../format";

const WORDS: Readonly<Record<string, string>> = {
  leader_epoch: "leader epoch",
  isr: "ISR",
  elr: "eligible leaders outside the ISR",
  damaged: "damaged on brokers",
  min_isr: "min.insync.replicas",
  log_start_offset: "log start",
  in_sync: "replicas in sync",
  topic_id: "topic id",
  replication_factor: "replication factor",
  under_replicated: "under-replicated partitions",
  offline: "partitions without a leader",
};

/** The name of what changed, for people. */
export function fieldName(what: string): string {
  return WORDS[what] ?? what;
}

/** A value of a change as text: a number, a name, brokers, or a reassignment. */
export function valueText(value: Change["before"]): string {
  if (value === null || value === undefined) return "none";
  if (typeof value === "string") return value;
  if (typeof value === "number") return number(value);
  if ("adding" in value) return `adds ${valueText(value.adding)}, removes ${valueText(value.removing)}`;
  return value.length === 0 ? "none" : value.join(", ");
}

/** How a list of members changed: ids are long, their number says more. */
export function membersText(change: Change): string {
  const ids = (value: Change["before"]): readonly string[] => (Array.isArray(value) ? value.map(String) : []);
  const [before, after] = [ids(change.before), ids(change.after)];
  const joined = after.filter((id) => !before.includes(id)).length;
  const left = before.filter((id) => !after.includes(id)).length;
  return `${count(before.length, "member")} → ${after.length} (${joined} joined, ${left} left)`;
}

/** Whether nothing differs. */
export function isEmpty({ brokers, controller, topics, groups, partitions_changed, events, losses }: Difference): boolean {
  const changes = [brokers, topics.created, topics.deleted, topics.changed, topics.written, losses, Object.keys(events)];
  const ofGroups = groups === null ? [] : [groups.created, groups.deleted, groups.changed];
  return controller === null && partitions_changed === 0 && [...changes, ...ofGroups].every((each) => each.length === 0);
}
