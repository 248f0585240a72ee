/** One moment of a run as lanes. */
import { epochRanges } from "../drawing/epochs";
import type { LaneData } from "../drawing/types";
import type { ReplicaLog, Run } from "./types";

/** The lanes of a moment; a broker that does not respond has the log that it had last. */
export function lanesAt(run: Run, at: number): LaneData[] {
  const moment = run.moments[at];
  if (moment === undefined) return [];
  return run.brokers.map((broker, place) => {
    const now = moment.logs[place] ?? null;
    const log = now ?? lastLog(run, at, place);
    const [end, highWatermark, epochs] = log ?? [null, null, null];
    const leads = now !== null && moment.leader === broker;
    return {
      name: `broker ${broker}`,
      start: 0,
      end,
      highWatermark,
      epochs: epochRanges(epochs, 0, end),
      inIsr: moment.isr.includes(broker),
      leads,
      state: now === null ? "down" : "ok",
      note: now === null ? "down" : `LEO ${end?.toLocaleString("en")}`,
    };
  });
}

function lastLog(run: Run, at: number, place: number): ReplicaLog | null {
  for (let n = at; n >= 0; n--) {
    const log = run.moments[n]?.logs[place];
    if (log != null) return log;
  }
  return null;
}

/** The offsets that must be in view: of the replicas in sync, or of all if none responds. */
export function marksOf(lanes: readonly LaneData[]): number[] {
  const live = lanes.filter((lane) => lane.state === "ok" && (lane.inIsr || lane.leads));
  return (live.length > 0 ? live : lanes).flatMap((lane) => [lane.end, lane.highWatermark].filter((offset) => offset !== null));
}

/** The last moment up to a time. */
export function placeOf(run: Run, atS: number): number {
  return Math.max(0, run.moments.findLastIndex((moment) => moment.at_s <= atS));
}
