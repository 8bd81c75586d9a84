// The strip above the overview: what a person should look at. Each part is shown to those who may ask for it.

import * as api from "../api.ts";
import { NoAnswer } from "../api.ts";
import { el } from "../dom.ts";
import { duration, plural } from "../format.ts";
import { labelsOf, readMetrics, type Sample, valueOf } from "../metrics.ts";
import { link } from "../page.ts";
import { address } from "../route.ts";

const EVERY_MS = 15_000;
const DAY = 86_400;
/** Certificates and keys that end within this time are told of. */
const SOON_SECONDS = 14 * DAY;
const FULL_SHARE = 0.9;

interface Chip {
  text: string;
  mood: "good" | "warn" | "bad";
  place?: string;
}

export class HealthStrip {
  readonly node = el("section", "health");
  private readonly chips = el("ul", "chips");
  private readonly findings = el("ul", "plain findings");
  private at = 0;

  constructor() {
    this.node.setAttribute("aria-label", "Health of the service");
    this.node.append(this.chips, this.findings);
  }

  async update(): Promise<void> {
    if (Date.now() - this.at < EVERY_MS) return;
    this.at = Date.now();
    const [health, text, bans, hosts] = await Promise.all([
      answered(api.health()),
      answered(api.metrics()),
      answered(api.bans()),
      answered(api.hosts()),
    ]);
    const chips: Chip[] = [];
    if (health !== null)
      chips.push(health.ready ? { text: "ready", mood: "good" } : { text: "not ready", mood: "bad" });
    if (text !== null) chips.push(...measured(readMetrics(text)));
    if (bans !== null)
      chips.push(
        bans.length === 0
          ? { text: "no bans", mood: "good" }
          : { text: plural(bans.length, "ban"), mood: "warn", place: address("configuration") },
      );
    if (hosts !== null) {
      const drained = hosts.filter((one) => one.drain).length;
      chips.push(
        drained === 0
          ? { text: "not drained", mood: "good" }
          : { text: "drained: starts no transfers", mood: "warn", place: address("configuration") },
      );
    }
    this.chips.replaceChildren(...chips.map(chipNode));
    const told = (health?.findings ?? []).map((one) => String(one.text ?? ""));
    this.findings.replaceChildren(...told.filter((one) => one !== "").map((one) => el("li", "finding", one)));
    this.findings.hidden = told.length === 0;
  }
}

function chipNode({ text, mood, place }: Chip): HTMLElement {
  const word = { good: "", warn: "warning: ", bad: "problem: " }[mood];
  const content = place === undefined ? el("span", "", text) : link(place, text);
  return el("li", `chip ${mood}`, el("span", "hidden-text", word), content);
}

function measured(samples: Sample[]): Chip[] {
  const chips: Chip[] = [];
  const endings = samples.filter((one) => one.name === "penstock_expiry_seconds");
  const first = [...endings].sort((a, b) => a.value - b.value)[0];
  if (first !== undefined) {
    const what = (first.labels["what"] ?? "").replace(/_/g, " ");
    const when = first.value <= 0 ? "expired" : `expires in ${first.value > 2 * DAY ? `${Math.floor(first.value / DAY)} d` : duration(first.value)}`;
    const mood = first.value <= 0 ? "bad" : first.value < SOON_SECONDS ? "warn" : "good";
    chips.push({ text: `${what} ${when}`, mood });
  }
  const pools = labelsOf(samples, "penstock_pool_free_bytes", "pool");
  if (pools.length > 0) {
    const unsound = pools.filter((pool) => valueOf(samples, "penstock_pool_condition", { pool, condition: "sound" }) !== 1);
    const shares = pools.map((pool) => poolShare(samples, pool));
    const most = Math.max(...shares);
    const fullest = `fullest pool ${(most * 100).toFixed(0)} %`;
    chips.push(
      unsound.length > 0
        ? { text: `${plural(unsound.length, "pool")} not sound: ${unsound.join(", ")}`, mood: "bad", place: address("storage") }
        : { text: `${plural(pools.length, "pool")} sound, ${fullest}`, mood: most >= FULL_SHARE ? "warn" : "good", place: address("storage") },
    );
  }
  const silent = valueOf(samples, "penstock_nodes", { role: "silent" });
  if (silent !== undefined) {
    const nodes = samples.filter((one) => one.name === "penstock_nodes").reduce((sum, one) => sum + one.value, 0);
    chips.push({ text: silent > 0 ? `${plural(silent, "node")} silent` : plural(nodes, "node"), mood: silent > 0 ? "bad" : "good" });
  }
  return chips;
}

/** How much of a pool is used, of what it holds and has free. */
export function poolShare(samples: Sample[], pool: string): number {
  const used = valueOf(samples, "penstock_pool_used_bytes", { pool }) ?? 0;
  const free = valueOf(samples, "penstock_pool_free_bytes", { pool }) ?? 0;
  return used + free > 0 ? used / (used + free) : 0;
}

/** `null`: this reader may not ask, or there is nothing to ask. A service that is away or a token that has ended is the page's matter. */
export async function answered<T>(asked: Promise<T>): Promise<T | null> {
  try {
    return await asked;
  } catch (why) {
    if (why instanceof NoAnswer && (why.kind === "forbidden" || why.kind === "refused")) return null;
    if (why instanceof NoAnswer && why.status === 503) return null;
    throw why;
  }
}
