// Builds the page again, elsewhere, and compares it with the committed one: `npm run check`.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const committed = join(root, "../crates/observe/assets");
const fresh = mkdtempSync(join(tmpdir(), "penstock-page-"));
try {
  await build({ root, logLevel: "warn", build: { outDir: fresh, emptyOutDir: true } });
  const names = [...new Set([...readdirSync(fresh), ...readdirSync(committed)])].sort();
  const read = (folder, name) =>
    readdirSync(folder).includes(name) ? readFileSync(join(folder, name), "utf8") : null;
  const differing = names.filter((name) => read(fresh, name) !== read(committed, name));
  if (differing.length > 0) {
    console.error(
      `not as built from web/: ${differing.join(", ")}; ` +
        "run 'npm run build' in web/ and commit crates/observe/assets",
    );
    process.exitCode = 1;
  } else {
    console.log(`ok: the committed page is what web/ builds (${names.join(", ")})`);
  }
} finally {
  rmSync(fresh, { recursive: true, force: true });
}
