/** What the player draws, computed from a story's data. */
import { epochRanges } from "../drawing/epochs";
import type { LaneData, Mark, RecordCell } from "../drawing/types";
import type { Entry, FrameData, PrintedLine, ReplicaData, StoryData } from "./types";

/** Stands below all logs; producers, consumers and the client stand above them. */
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

/** What is special about the cell of a marker: `commit(7)` ends the transaction of producer 7. */
function markerOf(entry: Entry): Partial<RecordCell> {
  const found = /^(commit|abort)\(\d+\)$/.exec(entry[2]);
  return found === null ? {} : { marker: true, short: found[1] ?? "" };
}

/** A lane of the drawing. `before` is the replica one step earlier, for what is new and what is lost. */
export function laneOf(replica: ReplicaData, frame: FrameData, before: ReplicaData | undefined): LaneData {
  const records: RecordCell[] = replica.log.map((entry) => ({
    offset: entry[0],
    epoch: entry[1],
    text: recordText(entry),
    ...markerOf(entry),
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
  if (replica.leads) {
    for (const entry of frame.lost) {
      const drawn = marks.some((mark) => mark.start === entry[0] && mark.kind === "lost");
      if (entry[0] >= replica.log_end_offset && !drawn) {
        marks.push({ kind: "lost", start: entry[0], end: entry[0] + 1, text: `${recordText(entry)} was acknowledged and is lost` });
      }
    }
  }
  return {
    name: replica.name,
    start: replica.log[0]?.[0] ?? replica.log_start_offset,
    end: replica.log_end_offset,
    highWatermark: replica.high_watermark,
    epochs: epochRanges(replica.epochs, replica.log_start_offset, replica.log_end_offset),
    inIsr: replica.in_isr,
    leads: replica.leads,
    state: replica.alive ? "ok" : "down",
    lastStable: replica.last_stable_offset,
    records,
    marks,
    note: noteOf(replica),
  };
}

/** The second line below a replica's name. */
function noteOf(replica: ReplicaData): string {
  if (!replica.alive) return `down, LEO ${replica.log_end_offset}`;
  const stable = replica.last_stable_offset;
  if (stable === null) return `LEO ${replica.log_end_offset}, HW ${replica.high_watermark}`;
  return `HW ${replica.high_watermark}, LSO ${stable}`;
}

/** A coordinator: it is drawn by what it has written, not by offsets. */
export interface CoordinatorData {
  readonly name: string;
  readonly of: string;
  readonly leads: boolean;
  readonly inIsr: boolean;
  readonly alive: boolean;
  readonly records: readonly { readonly offset: number; readonly epoch: number; readonly text: string; readonly isNew: boolean }[];
}

export function coordinatorOf(replica: ReplicaData, before: ReplicaData | undefined): CoordinatorData {
  const added = new Set(before === undefined ? [] : missing(replica.log, before.log).map((entry) => entry[0]));
  return {
    name: replica.name,
    of: replica.topic === "__consumer_offsets" ? "groups" : "transactions",
    leads: replica.leads,
    inIsr: replica.in_isr,
    alive: replica.alive,
    records: replica.log.map(([offset, epoch, text]) => ({ offset, epoch, text, isNew: added.has(offset) })),
  };
}

/** The newest texts that fit into a width, and where each begins. */
export function fitted<T extends { readonly text: string }>(
  records: readonly T[],
  width: number,
): { hidden: number; shown: { record: T; x: number; width: number }[] } {
  const LETTER = 7;
  const PAD = 14;
  const GAP = 3;
  const DOTS = 16;
  const widths = records.map((record) => record.text.length * LETTER + PAD);
  let first = records.length;
  let used = 0;
  while (first > 0) {
    const next = used + (widths[first - 1] ?? 0) + GAP;
    if (next + (first > 1 ? DOTS : 0) > width) break;
    used = next;
    first--;
  }
  let x = first > 0 ? DOTS : 0;
  const shown = records.slice(first).map((record, n) => {
    const found = { record, x, width: widths[first + n] ?? 0 };
    x += found.width + GAP;
    return found;
  });
  return { hidden: first, shown };
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

/** The outside parties that send or receive a message anywhere in the story, so that the layout stays:
 * producers and consumers by their names, and the client of stories that name none. */
export function outsiders(story: StoryData): { clients: readonly string[]; controller: boolean } {
  const names = new Set<string>();
  const brokers = new Set<string>();
  for (const step of story.steps) {
    for (const frame of Object.values(step.frames)) {
      for (const line of frame.lines) if (line.from !== "") names.add(line.from).add(line.to);
      for (const replica of frame.replicas) brokers.add(replica.name);
    }
  }
  const clients = [...names].filter((name) => !brokers.has(name) && name !== CONTROLLER).sort();
  return { clients, controller: names.has(CONTROLLER) };
}

/** The largest log end in the story, and the longest text of a record. */
export function extent(story: StoryData): { end: number; letters: number } {
  let end = 1;
  let letters = 4;
  for (const step of story.steps) {
    for (const frame of Object.values(step.frames)) {
      for (const replica of frame.replicas.filter((each) => !each.internal)) {
        end = Math.max(end, replica.log_end_offset);
        for (const entry of replica.log) {
          letters = Math.max(letters, (markerOf(entry).short ?? recordText(entry)).length);
        }
      }
    }
  }
  return { end, letters: Math.min(letters, 12) };
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
