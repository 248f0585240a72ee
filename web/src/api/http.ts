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
      return { error: body.error, advice, status: response.status };
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

/** POST an action and return its message. Throws RequestFailed. */
export async function postAction(name: string, body: object): Promise<string> {
  const done = await request<{ message?: string }>(`/api/actions/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Tidelog-Console": "1" },
    body: JSON.stringify(body),
  });
  return done.message ?? "done";
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
