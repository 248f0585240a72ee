/** Whether the open page receives data; shown in the header. */

export type Status = "connecting" | "live" | "past" | "lost" | "failed";

class Connection {
  status = $state<Status>("connecting");
  /** When the last data arrived or was sampled. */
  atMs = $state<number | null>(null);
}

export const connection = new Connection();
