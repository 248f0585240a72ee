/** What the player draws, computed from a story's data. */
import { epochRanges } from "../drawing/epochs";
import type { LaneData, Mark, RecordCell } from "../drawing/types";
import type { Entry, FrameData, PrintedLine, ReplicaData, StoryData } from "./types";

/** The party that is drawn below the replicas, as coordinators are; clients and producers are above. */
export const CONTROLLER = "controller";

/** The newest frame of a rule up to this step that has replicas, and the step it belongs to. */
export function stateAt(story: StoryData, rule: string, at: number): { frame: FrameData; step: number } | null {
  for (let step = at; step >= 0; step--) {
    const frame = story.steps[step]?.frames[rule];
    if (frame !== undefined && frame.replicas.length > 0) return { frame, step };
  }
  return null;
}

const same = (one: Entry, other: Entry): boolean => one[0] === other[0] && one[1] === other[1] && one[2] === other[2];

/** The entries of `one` that `other` lacks. */
export function missing(one: readonly Entry[], other: readonly Entry[]): Entry[] {
  const byOffset = new Map(other.map((entry) => [entry[0], entry]));
  return one.filter((entry) => {
    const found = byOffset.get(entry[0]);
    return found === undefined || !same(entry, found);
  });
}

/** A record and its leader epoch, as everywhere in stories. */
export function recordText(entry: Entry): string {
  return `${entry[2]}@${entry[1]}`;
}

/** A lane of the drawing. `before` is the replica one step earlier, for what is new and what is lost. */
export function laneOf(replica: ReplicaData, frame: FrameData, before: ReplicaData | undefined): LaneData {
  const records: RecordCell[] = replica.log.map((entry) => ({
    offset: entry[0],
    epoch: entry[1],
    text: recordText(entry),
  }));
  const marks: Mark[] = [];
  if (before !== undefined) {
    for (const entry of missing(replica.log, before.log)) {
      marks.push({ kind: "new", start: entry[0], end: entry[0] + 1, text: `${recordText(entry)} is new in this step` });
    }
    for (const entry of missing(before.log, replica.log)) {
      if (entry[0] < replica.log_end_offset) continue; // replaced or deleted: the cell shows what is there now
      marks.push({ kind: "lost", start: entry[0], end: entry[0] + 1, text: `${recordText(entry)} was dropped in this step` });
    }
  }
  if (frame.registration?.leader === replica.name) {
    for (const entry of frame.lost) {
      const drawn = marks.some((mark) => mark.start === entry[0] && mark.kind === "lost");
      if (entry[0] >= replica.log_end_offset && !drawn) {
        marks.push({ kind: "lost", start: entry[0], end: entry[0] + 1, text: `${recordText(entry)} was acknowledged and is lost` });
      }
    }
  }
  const stable = replica.last_stable_offset;
  const held = stable !== null && stable < replica.high_watermark ? stable : null;
  return {
    name: replica.name,
    start: replica.log[0]?.[0] ?? replica.log_start_offset,
    end: replica.log_end_offset,
    highWatermark: replica.high_watermark,
    lastStable: held,
    epochs: epochRanges(replica.epochs, replica.log_start_offset, replica.log_end_offset),
    inIsr: replica.in_isr,
    leads: frame.registration?.leader === replica.name,
    state: replica.alive ? "ok" : "down",
    records,
    marks,
    note: replica.alive ? `LEO ${replica.log_end_offset}, HW ${replica.high_watermark}${held === null ? "" : `, LSO ${held}`}` : `down, LEO ${replica.log_end_offset}`,
  };
}

/** A message with its number in the step. */
export interface Message extends PrintedLine {
  readonly number: number;
}

export function messagesOf(frame: FrameData | undefined): Message[] {
  return (frame?.lines ?? []).filter((line) => line.from !== "").map((line, n) => ({ ...line, number: n + 1 }));
}

/** Lines with the numbers of the messages among them. */
export function numbered(frame: FrameData): { line: PrintedLine; number: number | null }[] {
  let number = 0;
  return frame.lines.map((line) => ({ line, number: line.from === "" ? null : ++number }));
}

/** Who takes part without a log, in the order of appearance: clients above the lanes; coordinators and the controller below. */
export interface Outsiders {
  readonly above: readonly string[];
  readonly below: readonly string[];
}

/** The outside parties of the whole story, so that the layout stays the same in all steps. */
export function outsiders(story: StoryData): Outsiders {
  const names = new Set<string>();
  const brokers = new Set<string>();
  const replicas = new Set<string>();
  for (const step of story.steps) {
    for (const frame of Object.values(step.frames)) {
      for (const line of frame.lines) names.add(line.from).add(line.to);
      for (const replica of frame.replicas) {
        brokers.add(replica.name);
        if (replica.assigned || replica.log_end_offset > 0) replicas.add(replica.name);
      }
    }
  }
  names.delete("");
  const below = [...brokers].filter((name) => names.has(name) && !replicas.has(name));
  if (names.has(CONTROLLER)) below.push(CONTROLLER);
  return { above: [...names].filter((name) => !brokers.has(name) && name !== CONTROLLER), below };
}

/** The replicas that have a lane: all but coordinators that are drawn as a party below. */
export function withLane(replicas: readonly ReplicaData[], { below }: Outsiders): readonly ReplicaData[] {
  return replicas.filter((replica) => !below.includes(replica.name));
}

/** The largest log end in the story, the longest text of a record, and whether a transaction is ever open below the HW. */
export function extent(story: StoryData): { end: number; letters: number; held: boolean } {
  let end = 1;
  let letters = 4;
  let held = false;
  for (const step of story.steps) {
    for (const frame of Object.values(step.frames)) {
      for (const replica of frame.replicas) {
        end = Math.max(end, replica.log_end_offset);
        held ||= replica.last_stable_offset !== null && replica.last_stable_offset < replica.high_watermark;
        for (const entry of replica.log) letters = Math.max(letters, recordText(entry).length);
      }
    }
  }
  return { end, letters: Math.min(letters, 12), held };
}

/** The offsets that are drawn: the whole log if it fits, else its end. */
export function windowOf(end: number, capacity: number, stepEnd: number): { from: number; to: number } {
  const room = Math.max(3, capacity);
  if (end + 1 <= room) return { from: 0, to: Math.max(end + 1, 4) };
  const to = Math.max(stepEnd + 1, room);
  return { from: to - room, to };
}

/** Join lines to paragraphs. */
export function paragraphs(lines: readonly string[]): string[] {
  const found: string[] = [];
  let open = false;
  for (const line of lines) {
    const text = line.trim();
    if (text === "") open = false;
    else if (open) found.push(`${found.pop() ?? ""} ${text}`);
    else {
      found.push(text);
      open = true;
    }
  }
  return found;
}

/** The first step that is not part of `given:`. */
export function firstStep(story: StoryData): number {
  const found = story.steps.findIndex((step) => !step.given);
  return found < 0 ? 0 : found;
}

/** The step that an address names, from 0; null if it names none. */
export function stepIn(query: URLSearchParams): number | null {
  const given = query.get("step");
  return given !== null && /^\d{1,4}$/.test(given) ? Number(given) - 1 : null;
}

/** The newest prose up to a step: it stays until the next one, as the text beside a picture. */
export function proseAt(story: StoryData, at: number): readonly string[] {
  for (let step = at; step >= 0; step--) {
    const prose = story.steps[step]?.prose ?? [];
    if (prose.length > 0) return prose;
  }
  return [];
}
