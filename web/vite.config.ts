import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const WEB = fileURLToPath(new URL(".", import.meta.url));
const STATIC = join(WEB, "..", "src", "tidelog", "apps", "console", "static");
const BACKEND = process.env["CONSOLE_BACKEND"] ?? "http://127.0.0.1:8080";

/** List all files below a folder, but those of node_modules. */
function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.name !== "node_modules")
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? sources(path) : [path];
    });
}

/** Hash path and content of every source file; tests/repo/test_console_build.py does the same. */
function hashOfSources(): string {
  const hash = createHash("sha256");
  const named = sources(WEB).map((path) => [relative(WEB, path).split(sep).join("/"), path] as const);
  for (const [name, path] of named.sort(([a], [b]) => (a < b ? -1 : 1))) {
    const content = readFileSync(path);
    hash.update(`${name}\0${content.length}\0`).update(content);
  }
  return hash.digest("hex");
}

/** Write sources.sha256 next to the built files, so that a test finds a stale build. */
const stamp: Plugin = {
  name: "sources-sha256",
  apply: "build",
  closeBundle: () => writeFileSync(join(STATIC, "sources.sha256"), `${hashOfSources()}\n`),
};

export default defineConfig({
  plugins: [svelte(), stamp],
  build: {
    outDir: STATIC,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy allows no data: addresses
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  test: { css: true }, // a test reads the colours
  server: { proxy: { "/api": { target: BACKEND, changeOrigin: true } } },
});
