/** Runs loads one after another. One that is replaced before it begins is dropped, so that the newest is never late. */
export class OneAtATime {
  #busy = false;
  #next: (() => Promise<void>) | null = null;

  /** Whether a newer load waits for the one that runs. */
  get hasNewer(): boolean {
    return this.#next !== null;
  }

  /** Begin the load as soon as the running one has ended. */
  push(load: () => Promise<void>): void {
    this.#next = load;
    if (!this.#busy) void this.#run();
  }

  async #run(): Promise<void> {
    this.#busy = true;
    try {
      while (this.#next !== null) {
        const load = this.#next;
        this.#next = null;
        await load();
      }
    } finally {
      this.#busy = false;
    }
  }
}
