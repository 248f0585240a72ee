/** The questions of the actions on topics, partitions and groups. */
import type { Question } from "../shell/dialog.svelte";

export function createTopic(): Question {
  return {
    action: "create-topic",
    title: "Create a topic",
    text: "Empty numbers mean the cluster's defaults.",
    confirm: "Create",
    fields: [
      { name: "topic", label: "Name", kind: "text", value: "", required: true, pattern: "[a-zA-Z0-9._\\-]{1,249}", hint: "letters, digits, dots, hyphens, underscores" },
      { name: "partitions", label: "Partitions", kind: "number", value: "1" },
      { name: "replication_factor", label: "Replication factor", kind: "number", value: "" },
    ],
  };
}

export function produce(topic: string, partition: number | null): Question {
  return {
    action: "produce",
    title: `Produce to ${topic}${partition === null ? "" : `/${partition}`}`,
    text: "Writes the same record as often as you say.",
    confirm: "Produce",
    body: partition === null ? { topic } : { topic, partition },
    fields: [
      { name: "key", label: "Key", kind: "text", value: "", hint: "empty: no key" },
      { name: "value", label: "Value", kind: "area", value: "", required: true },
      { name: "count", label: "How often", kind: "number", value: "1", required: true },
      {
        name: "acks",
        label: "acks",
        kind: "select",
        value: "all",
        options: [
          { value: "all", text: "all: wait until it is committed" },
          { value: "1", text: "1: wait for the leader" },
          { value: "0", text: "0: do not wait" },
        ],
      },
    ],
  };
}

export function elect(topic: string, partition: number): Question {
  return {
    action: "elect",
    title: `Elect a leader for ${topic}/${partition}`,
    text: "Elects the preferred replica, the first of the assignment. An unclean election makes a replica leader that is not in sync: committed records may be lost.",
    confirm: "Elect",
    body: { topic, partition },
    fields: [{ name: "unclean", label: "unclean election (may lose records)", kind: "check", value: "false" }],
  };
}

export function reassign(topic: string, partition: number, replicas: readonly number[]): Question {
  return {
    action: "reassign",
    title: `Move replicas of ${topic}/${partition}`,
    text: "New replicas copy the log first; then the old ones are removed. The first broker is the preferred leader.",
    confirm: "Move",
    body: { topic, partition },
    fields: [{ name: "replicas", label: "Brokers", kind: "numbers", value: replicas.join(", "), required: true, pattern: "[0-9,\\s]+", hint: "ids, separated by commas" }],
  };
}

export function abortTransaction(id: string): Question {
  return {
    action: "abort-transaction",
    title: `Abort the transaction of ${id}`,
    text: "Fences the producer: its open transaction is aborted, and its next request fails.",
    confirm: "Abort",
    danger: true,
    body: { transactional_id: id },
  };
}

export function abortHanging(topic: string, partition: number, offset: number): Question {
  return {
    action: "abort-transaction",
    title: `Abort the transaction in ${topic}/${partition}`,
    text: `Writes an abort marker for the transaction that begins at offset ${offset}, which no coordinator will end.`,
    confirm: "Abort",
    danger: true,
    body: { topic, partition, offset },
  };
}

export function resetOffsets(group: string, topics: readonly string[]): Question {
  return {
    action: "reset-offsets",
    title: `Reset offsets of ${group}`,
    text: "The group must have no members. The offsets are committed at once.",
    confirm: "Reset",
    danger: true,
    body: { group },
    fields: [
      { name: "topic", label: "Topic", kind: "select", value: "", options: [{ value: "", text: "all topics of the group" }, ...topics.map((topic) => ({ value: topic, text: topic }))] },
      {
        name: "to",
        label: "To",
        kind: "select",
        value: "earliest",
        options: [
          { value: "earliest", text: "the first record" },
          { value: "latest", text: "the end" },
          { value: "offset", text: "the offset below" },
          { value: "shift", text: "shift each offset by the number below" },
          { value: "time", text: "the time below (ms since 1970)" },
        ],
      },
      { name: "number", label: "Number", kind: "number", value: "" },
    ],
  };
}
