// Writes `manifest.txt` beside the built files: a hash of all sources, and one of each built file. A test of
// each crate that embeds them computes both again (`tests/it/assets.rs`) and fails when the committed files are
// not the built ones.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Plugin } from "vite";

/** Everything outside `src/` that has a say in what is built. */
const LOOSE = [
  "index.html",
  "manifest.ts",
  "package-lock.json",
  "package.json",
  "pages.config.ts",
  "tsconfig.json",
  "vite.config.ts",
];

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

/** Name, length and content of each source, sorted by name. */
function hashSources(root: string): string {
  const names = [...filesBelow(join(root, "src")).map((path) => path.slice(root.length + 1)), ...LOOSE];
  names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const hash = createHash("sha256");
  for (const name of names) {
    const content = readFileSync(join(root, name));
    hash.update(`${name} ${content.length}\n`);
    hash.update(content);
  }
  return hash.digest("hex");
}

export function writeManifest(): Plugin {
  let root = "";
  let out = "";
  return {
    name: "penstock-manifest",
    apply: "build",
    configResolved(config) {
      root = config.root;
      out = resolve(root, config.build.outDir);
    },
    closeBundle() {
      const lines = [`${hashSources(root)} sources`];
      for (const name of readdirSync(out).sort()) {
        if (name === "manifest.txt") continue;
        lines.push(
          `${createHash("sha256")
            .update(readFileSync(join(out, name)))
            .digest("hex")} ${name}`,
        );
      }
      writeFileSync(join(out, "manifest.txt"), `${lines.join("\n")}\n`);
    },
  };
}
