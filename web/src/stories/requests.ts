/** Requests of the pages of stories. */
import type { Shelf, StoryData } from "./types";

export interface Refusal {
  readonly error: string;
  readonly advice: string;
  readonly line: number | null;
}

/** A request was refused, or the server does not respond. */
export class Refused extends Error {
  constructor(readonly refusal: Refusal) {
    super(refusal.error);
  }
}

async function send<T>(path: string, options: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused({
      error: "The console's server does not respond.",
      advice: "Check that `tidelog console` is running, and try again.",
      line: null,
    });
  }
  const body: unknown = await response.json().catch(() => null);
  if (response.ok) return body as T;
  const found = typeof body === "object" && body !== null ? (body as Partial<Refusal>) : {};
  throw new Refused({
    error: found.error ?? `The server returned status ${response.status}.`,
    advice: found.advice ?? "",
    line: found.line ?? null,
  });
}

let shelf: Promise<Shelf> | null = null;

/** The lists of stories and lessons, requested once. */
export function getShelf(): Promise<Shelf> {
  shelf ??= send<Shelf>("/api/stories").catch((error: unknown) => {
    shelf = null;
    throw error;
  });
  return shelf;
}

export function getStory(folder: string, name: string): Promise<StoryData> {
  return send(`/api/stories/${encodeURIComponent(folder)}/${encodeURIComponent(name)}`);
}

const POST = { "Content-Type": "application/json", "X-Tidelog-Console": "1" };

export function runStory(text: string): Promise<StoryData> {
  return send("/api/stories/run", { method: "POST", headers: POST, body: JSON.stringify({ text }) });
}

export interface Permissions {
  readonly allow_actions: boolean;
  readonly local: boolean;
}

export function getPermissions(): Promise<Permissions> {
  return send("/api/session");
}

export async function act(name: string, body: object): Promise<string> {
  const done = await send<{ message?: string }>(`/api/actions/${encodeURIComponent(name)}`, {
    method: "POST",
    headers: POST,
    body: JSON.stringify(body),
  });
  return done.message ?? "done";
}

/** The text of a failure, for a page. */
export function refusalOf(error: unknown): Refusal {
  return error instanceof Refused ? error.refusal : { error: String(error), advice: "", line: null };
}
