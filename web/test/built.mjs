// Builds the pages again, elsewhere, and compares them with the committed ones: `npm run check`.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const BUILDS = [
  { config: "vite.config.ts", committed: "crates/observe/assets" },
  { config: "pages.config.ts", committed: "crates/storage-element/assets" },
];
for (const { config, committed } of BUILDS) {
  const fresh = mkdtempSync(join(tmpdir(), "penstock-page-"));
  try {
    await build({
      root,
      configFile: join(root, config),
      logLevel: "warn",
      build: { outDir: fresh, emptyOutDir: true },
    });
    const kept = join(root, "..", committed);
    const names = [...new Set([...readdirSync(fresh), ...readdirSync(kept)])].sort();
    const read = (folder, name) =>
      readdirSync(folder).includes(name) ? readFileSync(join(folder, name), "utf8") : null;
    const differing = names.filter((name) => read(fresh, name) !== read(kept, name));
    if (differing.length > 0) {
      console.error(
        `not as built from web/: ${differing.join(", ")}; run 'npm run build' in web/ and commit ${committed}`,
      );
      process.exitCode = 1;
    } else {
      console.log(`ok: ${committed} is what web/ builds (${names.join(", ")})`);
    }
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}
