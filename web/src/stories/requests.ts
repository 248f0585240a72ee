/** Requests of the pages of stories. */
import { getJson, postJson } from "../api/http";
import type { Shelf, StoryData } from "./types";

let shelf: Promise<Shelf> | null = null;

/** The lists of stories and lessons, requested once. */
export function getShelf(): Promise<Shelf> {
  shelf ??= getJson<Shelf>("/api/stories").catch((error: unknown) => {
    shelf = null;
    throw error;
  });
  return shelf;
}

export function getStory(folder: string, name: string): Promise<StoryData> {
  return getJson(`/api/stories/${encodeURIComponent(folder)}/${encodeURIComponent(name)}`);
}

export function runStory(text: string): Promise<StoryData> {
  return postJson("/api/stories/run", { text });
}
