/** Light or dark: the system's choice until a person chooses. theme.js applies it before the first paint. */

class Theme {
  current = $state<"light" | "dark">(document.documentElement.dataset["theme"] === "dark" ? "dark" : "light");

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      if (chosen() === null) this.#apply(event.matches ? "dark" : "light");
    });
  }

  get other(): "light" | "dark" {
    return this.current === "dark" ? "light" : "dark";
  }

  toggle(): void {
    this.#apply(this.other);
    try {
      localStorage.setItem("tidelog-theme", this.current);
    } catch {
      // storage is blocked: the choice holds until the page is closed
    }
  }

  #apply(theme: "light" | "dark"): void {
    this.current = theme;
    document.documentElement.dataset["theme"] = theme;
  }
}

function chosen(): string | null {
  try {
    return localStorage.getItem("tidelog-theme");
  } catch {
    return null;
  }
}

export const theme = new Theme();
