// All links: a table that can be sorted and filtered, and a matrix of sources and destinations.

import * as api from "../api.ts";
import { colourOf } from "../colours.ts";
import { linkKey } from "../curve.ts";
import { el, setText, showList, type View } from "../dom.ts";
import { count, plural, rate } from "../format.ts";
import { card, labelled, link, type Page, scrolled, select, twin } from "../page.ts";
import { showStorages } from "../panels.ts";
import { address, replaceQuery, type Route, route } from "../route.ts";
import type { LinkNow, Overview } from "../types.ts";
import { short } from "./overview.ts";

interface Column {
  id: string;
  name: string;
  /** What rows are sorted by; the largest first, texts from A on. */
  by(link: LinkNow): number | string;
}

const COLUMNS: Column[] = [
  { id: "link", name: "link", by: (one) => short(linkKey(one)) },
  { id: "rate", name: "rate", by: (one) => one.rate_bytes_per_second },
  { id: "active", name: "moving", by: (one) => one.active },
  { id: "limit", name: "limit", by: (one) => one.limit },
  { id: "queued", name: "waiting", by: (one) => one.queued },
  { id: "finished", name: "finished", by: (one) => one.finished },
  { id: "failed", name: "files failed", by: (one) => one.failed },
  { id: "why", name: "reason of the next queued file", by: (one) => one.waiting_because ?? "" },
];
/** Rows and cells that are shown at once: the browser stays fluid with thousands of links. */
const ROWS_MAX = 200;
const MATRIX_MAX = 40;

const MEASURES: [value: string, text: string][] = [
  ["rate", "rate"],
  ["active", "files moving"],
  ["queued", "files waiting"],
  ["failed", "share of failed attempts"],
];

export class LinksPage implements Page {
  title = "Links";
  every = 2000;
  readonly node = el("div", "page");
  private readonly body = el("tbody", "link-rows");
  private readonly heads: Map<string, HTMLElement> = new Map();
  private readonly filter = el("input");
  private readonly busy = el("input");
  private readonly note = el("p", "hint");
  private readonly matrix = el("div");
  private readonly measure: HTMLSelectElement;
  private readonly storages = el("ul", "plain columns-list");
  private seen: Overview | null = null;
  private sort = "rate";
  private isReversed = false;

  constructor() {
    this.filter.type = "search";
    this.filter.id = "link-filter";
    this.filter.placeholder = "part of a name";
    this.filter.addEventListener("input", () => this.changed());
    this.busy.type = "checkbox";
    this.busy.addEventListener("change", () => this.changed());
    this.measure = select(MEASURES, "rate");
    this.measure.addEventListener("change", () => {
      replaceQuery({ matrix: this.measure.value });
      this.show();
    });
    const head = el("tr", "", ...COLUMNS.map((column) => this.head(column)));
    const table = el("table", "table links", el("caption", "hidden-text", "Links"), el("thead", "", head), this.body);
    const controls = el("div", "controls", labelled("Show", this.filter), labelled("only with work", this.busy));
    this.node.append(
      card(
        "Links",
        el("p", "hint", "A link is one direction between two storage elements. Its name leads to its curve."),
        controls,
        scrolled("Links", table),
        this.note,
        twin("/api/v1/overview"),
      ),
      card("Matrix", el("div", "controls", labelled("Colour by", this.measure)), this.matrix),
      card("Storage elements", this.storages),
    );
    this.follow(route());
  }

  follow({ query }: Route): boolean {
    this.sort = query.get("sort") ?? "rate";
    this.isReversed = query.get("order") === "reverse";
    this.filter.value = query.get("filter") ?? "";
    this.busy.checked = query.get("busy") === "yes";
    this.measure.value = query.get("matrix") ?? "rate";
    this.show();
    return true;
  }

  async update(): Promise<void> {
    this.seen = await api.overview();
    this.show();
  }

  private head(column: Column): HTMLElement {
    const cell = el("th", column.id);
    const button = el("button", "sort", column.name);
    button.type = "button";
    button.addEventListener("click", () => {
      this.isReversed = this.sort === column.id && !this.isReversed;
      this.sort = column.id;
      replaceQuery({ sort: column.id, order: this.isReversed ? "reverse" : null });
      this.show();
    });
    cell.scope = "col";
    cell.append(button);
    this.heads.set(column.id, cell);
    return cell;
  }

  private changed(): void {
    replaceQuery({
      filter: this.filter.value === "" ? null : this.filter.value,
      busy: this.busy.checked ? "yes" : null,
    });
    this.show();
  }

  private show(): void {
    for (const [id, cell] of this.heads)
      cell.setAttribute("aria-sort", id !== this.sort ? "none" : this.isReversed ? "ascending" : "descending");
    if (this.seen === null) return;
    const words = this.filter.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const fits = (one: LinkNow): boolean => {
      const name = linkKey(one).toLowerCase();
      const isBusy = one.active > 0 || one.queued > 0 || one.rate_bytes_per_second > 0;
      return words.every((word) => name.includes(word)) && (isBusy || !this.busy.checked);
    };
    const rows = this.seen.links.filter(fits).sort((a, b) => this.compare(a, b));
    const shown = rows.slice(0, ROWS_MAX);
    showList(this.body, shown, linkKey, linkRow);
    const hidden = rows.length - shown.length;
    const all = this.seen.links.length;
    setText(
      this.note,
      all === 0
        ? "No link has been used yet."
        : `${count(shown.length)} of ${plural(all, "link")}${hidden > 0 ? `; ${count(hidden)} more fit: filter to see them` : ""}.`,
    );
    this.showMatrix(rows);
    showStorages(this.storages, this.seen);
  }

  private compare(a: LinkNow, b: LinkNow): number {
    const column = COLUMNS.find((one) => one.id === this.sort) ?? COLUMNS[1]!;
    const [x, y] = [column.by(a), column.by(b)];
    const order = typeof x === "string" ? x.localeCompare(String(y)) : Number(y) - x;
    return (this.isReversed ? -order : order) || linkKey(a).localeCompare(linkKey(b));
  }

  private showMatrix(rows: LinkNow[]): void {
    const value = MATRIX_VALUES[this.measure.value] ?? MATRIX_VALUES["rate"]!;
    const ends = (of: (link: LinkNow) => string): string[] => {
      const sums = new Map<string, number>();
      for (const row of rows) sums.set(of(row), (sums.get(of(row)) ?? 0) + value.of(row));
      const ranked = [...sums].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
      return ranked.slice(0, MATRIX_MAX).map(([name]) => name).sort();
    };
    const sources = ends((one) => one.source);
    const destinations = ends((one) => one.destination);
    const most = Math.max(...rows.map(value.of), value.least);
    const byKey = new Map(rows.map((row) => [linkKey(row), row]));
    const cell = (source: string, destination: string): HTMLElement => {
      const key = linkKey({ source, destination });
      const row = byKey.get(key);
      if (row === undefined) return el("td", "no-link", el("span", "hidden-text", "no link"));
      const level = Math.ceil((5 * value.of(row)) / most);
      const text = link(address("overview", "", { link: key }), value.text(row));
      text.title = `${short(key)}: ${value.text(row)}`;
      return el("td", `level-${level}${value.isBad ? " bad-scale" : ""}`, text);
    };
    const name = (end: string): string => short(end);
    const corner = el("th", "", "from \\ to");
    const head = el("tr", "", corner, ...destinations.map((end) => headCell(name(end), "col")));
    const body = sources.map((source) =>
      el("tr", "", headCell(name(source), "row"), ...destinations.map((destination) => cell(source, destination))),
    );
    const table = el("table", "matrix", el("caption", "hidden-text", `${value.name} by source and destination`), el("thead", "", head), el("tbody", "", ...body));
    // The focus stays where it was: the table is made anew only when something differs.
    const before = this.matrix.firstElementChild?.firstElementChild;
    if (before?.isEqualNode(table) !== true)
      this.matrix.replaceChildren(rows.length === 0 ? el("p", "none", "No link fits.") : scrolled("Matrix of links", table));
  }
}

function headCell(text: string, scope: "row" | "col"): HTMLElement {
  const node = el("th", "", el("span", "", text));
  node.scope = scope;
  return node;
}

interface MatrixValue {
  name: string;
  of(link: LinkNow): number;
  text(link: LinkNow): string;
  /** What counts as the whole scale at least. */
  least: number;
  isBad: boolean;
}

const failedShare = (one: LinkNow): number => {
  const ended = one.finished + one.failed_attempts;
  return ended === 0 ? 0 : one.failed_attempts / ended;
};

const MATRIX_VALUES: Record<string, MatrixValue> = {
  rate: { name: "rate", of: (one) => one.rate_bytes_per_second, text: (one) => rate(one.rate_bytes_per_second), least: 1, isBad: false },
  active: { name: "files moving", of: (one) => one.active, text: (one) => `${count(one.active)} / ${count(one.limit)}`, least: 1, isBad: false },
  queued: { name: "files waiting", of: (one) => one.queued, text: (one) => count(one.queued), least: 1, isBad: false },
  failed: { name: "share of failed attempts", of: failedShare, text: (one) => `${(failedShare(one) * 100).toFixed(0)} %`, least: 1, isBad: true },
};

function linkRow(): View<LinkNow> {
  const swatch = el("span", "swatch");
  const name = link("", "");
  const [speed, active, limit, queued, finished, failed, why] = [el("td", "number"), el("td", "number"), el("td", "number"), el("td", "number"), el("td", "number"), el("td", "number"), el("td", "why")];
  const first = el("th", "link", swatch, name);
  first.scope = "row";
  const cells = [speed, active, limit, queued, finished, failed, why] as HTMLElement[];
  const node = el("tr", "link-row", first, ...cells);
  return {
    node,
    show(one) {
      const key = linkKey(one);
      setText(name, short(key));
      name.href = address("overview", "", { link: key });
      name.title = key;
      swatch.className = `swatch series-${colourOf(key)}`;
      setText(speed!, rate(one.rate_bytes_per_second));
      setText(active!, count(one.active));
      active!.classList.toggle("full", one.limit > 0 && one.active >= one.limit);
      setText(limit!, count(one.limit));
      const because = one.limit_because === null ? "" : `: ${one.limit_because}`;
      limit!.title = `${count(one.limit)} of ${count(one.limit_max)} allowed${because}`;
      setText(queued!, count(one.queued));
      setText(finished!, count(one.finished));
      setText(failed!, count(one.failed));
      failed!.classList.toggle("bad", one.failed > 0);
      const last = one.last_failure === null ? "" : `; the last one: ${one.last_failure}`;
      failed!.title = `${plural(one.failed_attempts, "failed attempt")}${last}`;
      setText(why!, one.waiting_because ?? (one.queued > 0 ? "unknown" : "–"));
    },
  };
}
