// Runs before the first paint, so that the theme does not flash. Without a choice, the system decides.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("tidelog-theme");
  } catch {
    // storage is blocked
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = chosen === "light" || chosen === "dark" ? chosen : dark ? "dark" : "light";
  document.documentElement.dataset.theme = theme;
})();
