/** The address: path and query as state; links and history. */

class Router {
  path = $state(location.pathname);
  query = $state(new URLSearchParams(location.search));
  /** Called before another page is opened, to write what belongs into this page's address. */
  leaving: () => void = () => {};

  constructor() {
    addEventListener("popstate", () => this.#read());
    document.addEventListener("click", (event) => this.#follow(event));
  }

  /** Open a path of the console; `?at=` stays, so that a chosen moment holds for all pages. */
  open(path: string): void {
    this.leaving();
    const [to = "/", query = ""] = path.split("?");
    const next = new URLSearchParams(query);
    const at = this.query.get("at");
    if (at !== null && !next.has("at")) next.set("at", at);
    history.pushState(null, "", withQuery(to, next));
    this.#read();
    scrollTo(0, 0);
  }

  /** Set or remove parameters of the query; `push` adds an entry to the browser's history. */
  setQuery(values: Readonly<Record<string, string | null>>, push = false): void {
    const next = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(values)) {
      if (value === null) next.delete(name);
      else next.set(name, value);
    }
    const address = withQuery(location.pathname, next);
    if (push) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
    this.#read();
  }

  #read(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  #follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.hasAttribute("download")) return;
    const to = new URL(link.href, location.href);
    if (to.origin !== location.origin || to.pathname.startsWith("/api/")) return;
    if (to.hash !== "" && to.pathname === location.pathname) return;
    event.preventDefault();
    this.open(to.pathname + to.search);
  }
}

function withQuery(path: string, query: URLSearchParams): string {
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

export const router = new Router();
