/** The script of the demo's report: draws the run whose data is in the page. */
import { mount } from "svelte";
import "../tokens.css";
import "../drawing/drawing.css";
import Replicas from "./Replicas.svelte";
import type { Run } from "./types";

const dark = matchMedia("(prefers-color-scheme: dark)");
const setTheme = (): void => {
  document.documentElement.dataset["theme"] = dark.matches ? "dark" : "light";
};
setTheme();
dark.addEventListener("change", setTheme);

const target = document.querySelector("#replicas");
const data = document.querySelector("#replicas-data")?.textContent;
if (target !== null && data != null) {
  target.replaceChildren();
  mount(Replicas, { target, props: { run: JSON.parse(data) as Run } });
}
