/** Tones and words for the states of transactional ids. */

export function transactionTone(state: string): "ok" | "info" | "warn" | "" {
  if (state === "Ongoing") return "info";
  return state.startsWith("Prepare") ? "warn" : "";
}

/** What a state means, for people who see Kafka's names for the first time. */
export const TRANSACTION_STATES: Readonly<Record<string, string>> = {
  Empty: "no transaction was begun yet",
  Ongoing: "open: the producer has not ended it",
  PrepareCommit: "committed: the markers are being written",
  PrepareAbort: "aborted: the markers are being written",
  PrepareEpochFence: "the producer is being fenced",
  CompleteCommit: "the last transaction was committed",
  CompleteAbort: "the last transaction was aborted",
  Dead: "the id has expired",
};

export const isOpen = (state: string): boolean => state === "Ongoing" || state.startsWith("Prepare");
