// Builds script and style of the door's pages into the folder from which the Rust crate embeds them; the pages
// themselves are written by the server. As with the live page, the built files are committed.
import { defineConfig } from "vite";
import { writeManifest } from "./manifest.ts";

export default defineConfig({
  base: "/.penstock/",
  publicDir: false,
  build: {
    outDir: "../crates/storage-element/assets",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rolldownOptions: {
      input: "src/pages/main.ts",
      output: { entryFileNames: "pages.js", assetFileNames: "pages[extname]", codeSplitting: false },
    },
  },
  plugins: [writeManifest()],
});
