/** Requests to the backend. */
import type { Failure } from "./types";

export const UNREACHABLE: Failure = {
  error: "The console's server does not respond.",
  advice: "Check that `tidelog console` is running; this page reconnects by itself.",
};

/** A request failed. */
export class RequestFailed extends Error {
  constructor(readonly failure: Failure) {
    super(failure.error);
  }
}

/** Read the failure from a response that is not OK; the server may have sent any text. */
export async function failureOf(response: Response): Promise<Failure> {
  try {
    const body: unknown = await response.json();
    if (typeof body === "object" && body !== null && "error" in body && typeof body.error === "string") {
      const advice = "advice" in body && typeof body.advice === "string" ? body.advice : "";
      const line = "line" in body && typeof body.line === "number" ? body.line : null;
      return { error: body.error, advice, status: response.status, line };
    }
  } catch {
    // not JSON
  }
  return { error: `The server returned status ${response.status}.`, advice: "", status: response.status };
}

/** GET JSON. Throws RequestFailed; AbortError if aborted. */
export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return request<T>(path, signal === undefined ? {} : { signal });
}

/** POST JSON. Throws RequestFailed. */
export async function postJson<T>(path: string, body: object): Promise<T> {
  return request<T>(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Tidelog-Console": "1" },
    body: JSON.stringify(body),
  });
}

/** What precedes resources and actions: nothing for the console's cluster, `lesson/` for a lesson's brokers. */
export type ClusterPrefix = "" | "lesson/";

/** POST an action and return its message. Throws RequestFailed. */
export async function postAction(name: string, body: object, cluster: ClusterPrefix = ""): Promise<string> {
  const done = await postJson<{ message?: string }>(`/api/${cluster}actions/${encodeURIComponent(name)}`, body);
  return done.message ?? "done";
}

/** What to show about anything that was thrown. */
export function failureFrom(error: unknown): Failure {
  return error instanceof RequestFailed ? error.failure : { error: String(error), advice: "" };
}

/** A failure in one line. */
export function inOneLine({ error, advice }: Failure): string {
  return advice === "" ? error : `${error}: ${advice}`;
}

async function request<T>(path: string, options: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new RequestFailed(UNREACHABLE);
  }
  if (!response.ok) throw new RequestFailed(await failureOf(response));
  return (await response.json()) as T;
}
