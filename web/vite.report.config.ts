import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const WEB = fileURLToPath(new URL(".", import.meta.url));

/** The drawing of the demo's report: one script and one style sheet, which the report contains. */
export default defineConfig({
  plugins: [svelte()],
  publicDir: false,
  build: {
    outDir: join(WEB, "..", "src", "tidelog", "apps", "demo", "report", "drawing"),
    emptyOutDir: true,
    target: "es2022",
    reportCompressedSize: false,
    lib: { entry: join(WEB, "src", "report", "main.ts"), formats: ["iife"], name: "tidelogReport", fileName: () => "drawing.js", cssFileName: "drawing" },
  },
});
