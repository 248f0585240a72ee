/** Words and tones for the problems of partitions and the states of brokers. */
import type { BrokerRow, ProblemKind, Severity } from "../api/types";

export const PROBLEMS: Readonly<Record<ProblemKind, { text: string; tone: "bad" | "warn" }>> = {
  offline: { text: "no leader", tone: "bad" },
  under_min_isr: { text: "below min ISR", tone: "bad" },
  damaged: { text: "damaged", tone: "bad" },
  under_replicated: { text: "under-replicated", tone: "warn" },
};

export interface Tone {
  readonly text: string;
  readonly tone: "ok" | "warn" | "bad" | "info";
}

/** The state of a broker in one word. */
export function brokerState(broker: BrokerRow): Tone {
  if (broker.process === "stopped") return { text: "stopped", tone: "bad" };
  if (broker.process === "paused") return { text: "paused", tone: "warn" };
  if (broker.isolated === true) return { text: "isolated", tone: "warn" };
  if (broker.unreachable !== null) return { text: "unreachable", tone: "bad" };
  if (!broker.registered) return { text: "unregistered", tone: "bad" };
  if (broker.fenced) return { text: "fenced", tone: "bad" };
  if (broker.acting === false) return { text: "no session", tone: "warn" };
  return { text: "up", tone: "ok" };
}

export const SEVERITIES: Readonly<Record<Severity, string>> = { ok: "✓", info: "i", warn: "!", bad: "✕" };

/** The tone of an event by its level and name. */
export function eventTone(level: string, event: string): "info" | "warn" | "bad" {
  if (event === "unclean_election" || event === "records_lost" || event === "log_damaged" || level === "ERROR") return "bad";
  return level === "WARN" || level === "WARNING" ? "warn" : "info";
}
