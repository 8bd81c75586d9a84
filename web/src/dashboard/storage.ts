// The pools of the site's own storage element, from the metrics of this port: space, movers, queues, condition.

import * as api from "../api.ts";
import { el, meter } from "../dom.ts";
import { bytes, count, plural, rate } from "../format.ts";
import { labelsOf, readMetrics, type Sample, valueOf } from "../metrics.ts";
import { card, type Page, scrolled, twin } from "../page.ts";
import { poolShare } from "./health.ts";
import { told } from "./refusal.ts";

export class StoragePage implements Page {
  title = "Storage";
  every = 5000;
  readonly node = el("div", "page");
  private readonly pools = el("div");
  private readonly sums = el("p", "summary-line");
  private before: { at: number; samples: Sample[] } | null = null;

  constructor() {
    this.node.append(
      card(
        "Pools",
        el("p", "hint", "A pool is a file system of the storage element of this site."),
        this.sums,
        this.pools,
        twin("/metrics"),
      ),
    );
  }

  async update(): Promise<void> {
    try {
      const samples = readMetrics(await api.metrics());
      const now = { at: Date.now(), samples };
      this.show(now, this.before);
      this.before = now;
    } catch (why) {
      this.pools.replaceChildren(told("pool", "", why));
    }
  }

  private show(now: { at: number; samples: Sample[] }, before: { at: number; samples: Sample[] } | null): void {
    const pools = labelsOf(now.samples, "penstock_pool_free_bytes", "pool");
    if (pools.length === 0) {
      this.pools.replaceChildren(el("p", "none", "This site has no storage element."));
      return;
    }
    const sum = (name: string): number => pools.reduce((all, pool) => all + (valueOf(now.samples, name, { pool }) ?? 0), 0);
    this.sums.textContent =
      `${plural(pools.length, "pool")}: ${bytes(sum("penstock_pool_used_bytes"))} used, ${bytes(sum("penstock_pool_free_bytes"))} free, ` +
      `${bytes(sum("penstock_pool_trash_bytes"))} in the trash, ${bytes(sum("penstock_pool_reserved_bytes"))} reserved.`;
    const names = ["pool", "condition", "used", "free", "trash", "in", "out", "movers / limit", "queued / limit", "errors of the disk", "quarantined"];
    const head = el("tr", "", ...names.map((name, n) => headCell(name, n < 2 ? "" : "number")));
    const rows = pools.map((pool) => poolRow(pool, now, before));
    const table = el("table", "table", el("caption", "hidden-text", "Pools"), el("thead", "", head), el("tbody", "", ...rows));
    const place = this.pools.firstElementChild;
    if (place?.classList.contains("scrolled") === true) place.replaceChildren(table);
    else this.pools.replaceChildren(scrolled("Pools", table));
  }
}

function headCell(text: string, name: string): HTMLElement {
  const node = el("th", name, text);
  node.scope = "col";
  return node;
}

function poolRow(pool: string, now: { at: number; samples: Sample[] }, before: { at: number; samples: Sample[] } | null): HTMLElement {
  const value = (name: string, labels: Record<string, string> = {}): number => valueOf(now.samples, name, { pool, ...labels }) ?? 0;
  const condition = now.samples.find((one) => one.name === "penstock_pool_condition" && one.labels["pool"] === pool && one.value === 1)?.labels["condition"] ?? "unknown";
  const isEnabled = value("penstock_pool_enabled") === 1;
  const speed = (direction: string): string => {
    const earlier = before === null ? undefined : valueOf(before.samples, "penstock_pool_moved_bytes_total", { pool, direction });
    if (before === null || earlier === undefined || now.at <= before.at) return "–";
    const moved = Math.max(0, value("penstock_pool_moved_bytes_total", { direction }) - earlier);
    return rate((moved * 1000) / (now.at - before.at));
  };
  const bar = meter("used");
  bar.show(Math.round(poolShare(now.samples, pool) * 100), 100);
  bar.node.classList.toggle("full", poolShare(now.samples, pool) >= 0.9);
  const of = (state: string, limit: string): string =>
    `${count(value("penstock_pool_movers", { state }))} / ${count(value(limit))}`;
  const errors = value("penstock_pool_failures_total", { kind: "read" }) + value("penstock_pool_failures_total", { kind: "write" });
  const name = el("th", "", pool);
  name.scope = "row";
  const words = isEnabled ? condition : `${condition}, disabled`;
  return el(
    "tr",
    "",
    name,
    el("td", "", el("span", `state ${condition === "sound" && isEnabled ? "finished" : "failed"}`, words)),
    el("td", "number used", bytes(value("penstock_pool_used_bytes")), bar.node),
    el("td", "number", bytes(value("penstock_pool_free_bytes"))),
    el("td", "number", bytes(value("penstock_pool_trash_bytes"))),
    el("td", "number", speed("in")),
    el("td", "number", speed("out")),
    el("td", "number", of("active", "penstock_pool_movers_max")),
    el("td", "number", of("queued", "penstock_pool_queue_max")),
    el("td", `number${errors > 0 ? " bad" : ""}`, count(errors)),
    el("td", "number", count(value("penstock_pool_quarantined_files"))),
  );
}
