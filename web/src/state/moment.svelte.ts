/** The moment that all pages show: live, or a time in `?at=MS`. */
import { router } from "../router/router.svelte";

const WRITE_MS = 200;

class Moment {
  /** Milliseconds since 1970; null: live. */
  at = $state<number | null>(fromQuery());
  #written: number | null = this.at;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    router.leaving = () => this.#write();
    $effect.root(() => {
      // Back and forward, and links with a time of their own.
      $effect(() => {
        const given = fromQuery();
        if (given !== this.#written) {
          this.#written = given;
          this.at = given;
        }
      });
    });
  }

  /** Show this moment. The address follows a little later: browsers limit how often it changes. */
  show(at: number | null): void {
    this.at = at === null ? null : Math.round(at);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#write(), WRITE_MS);
  }

  #write(): void {
    clearTimeout(this.#timer);
    if (this.#written === this.at) return;
    this.#written = this.at;
    router.setQuery({ at: this.at === null ? null : String(this.at) });
  }
}

function fromQuery(): number | null {
  const text = router.query.get("at");
  return text !== null && /^\d{1,16}$/.test(text) ? Number(text) : null;
}

export const moment = new Moment();
