// Builds the dashboard into the folder from which the Rust crate embeds it. The built files are committed,
// so that building Penstock needs Rust alone; `manifest.txt` beside them tells from which sources they were
// built.
import { defineConfig } from "vite";
import { writeManifest } from "./manifest.ts";

export default defineConfig({
  base: "/live/",
  build: {
    outDir: "../crates/observe/assets",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    // A data: URL would need a wider policy than the page has.
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: { entryFileNames: "live.js", assetFileNames: "live[extname]", codeSplitting: false },
    },
  },
  plugins: [writeManifest()],
  // For `npm run dev`: the data come from a service that runs elsewhere, with its own certificate.
  server: {
    host: "127.0.0.1",
    proxy: {
      "^/(live/api|api|fts3|config|ban|jobs|metrics|whoami)": { target: "https://127.0.0.2:8446", secure: false },
    },
  },
});
