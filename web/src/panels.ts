// Lists that pages are made of. Each takes what the service said and shows it in the node it is given; none of them asks.

import { el, meter, setText, showList, type View } from "./dom.ts";
import { bytes, clock, count, duration, host, moment, place, plural, rate } from "./format.ts";
import { link } from "./page.ts";
import { address } from "./route.ts";
import type { ActiveTransfer, FailureKind, Overview, RateChangeRow, Report, StorageNow } from "./types.ts";

/** One sentence that says how things stand. */
export function summary(seen: Overview): string {
  const { active, submitted } = seen.totals;
  if (active === 0 && submitted === 0) return "No files are moving or queued.";
  const moving =
    active === 0 ? "Nothing is moving" : `${plural(active, "file")} ${active === 1 ? "is" : "are"} moving`;
  if (submitted === 0) return `${moving}, none are queued.`;
  const most = [...seen.waiting].sort((a, b) => b.transfers - a.transfers)[0];
  const why = most === undefined ? "" : `${most.transfers < submitted ? ", most of them" : ""}: ${most.text}`;
  const queued = `${plural(submitted, "file")} ${submitted === 1 ? "is" : "are"} queued`;
  return `${moving}. ${queued}${why.replace(/\.?$/, ".")}`;
}

/** Totals beside the rate. */
export function showTotals(list: HTMLElement, seen: Overview): void {
  const totals = seen.totals;
  const items = [
    { name: "moving", value: count(totals.active), note: `limit ${count(seen.agents.limit)}` },
    { name: "waiting", value: count(totals.submitted), note: "" },
    { name: "files finished", value: count(totals.finished), note: "" },
    { name: "files failed", value: count(totals.failed), note: "" },
    { name: "failed attempts", value: count(totals.failed_attempts), note: "" },
    { name: "canceled", value: count(totals.canceled), note: "" },
    { name: "moved", value: bytes(totals.moved_bytes), note: "" },
  ];
  showList(
    list,
    items,
    (item) => item.name,
    () => {
      const value = el("dd");
      const name = el("dt");
      return {
        node: el("div", "total", name, value),
        show(item) {
          setText(name, item.name);
          setText(value, item.value);
          if (item.note !== "") value.append(" ", el("small", "", item.note));
        },
      };
    },
  );
}

/** Reasons with the number of files that each keeps waiting. */
export function showWaiting(list: HTMLElement, seen: Overview): void {
  const all = seen.waiting.reduce((sum, group) => sum + group.transfers, 0);
  const groups = [...seen.waiting].sort((a, b) => b.transfers - a.transfers);
  showOrNone(
    list,
    groups,
    "No files are queued.",
    (group) => `${group.reason} ${group.text}`,
    () => {
      const text = el("span", "grow");
      const files = el("b", "figure");
      const bar = meter("share of the queued files");
      return {
        node: el("li", "waiting-group", el("div", "spread", text, files), bar.node),
        show(group) {
          setText(text, group.text);
          setText(files, plural(group.transfers, "file"));
          bar.show(group.transfers, Math.max(all, 1));
          bar.node.classList.remove("full");
        },
      };
    },
  );
}

/** Files on their way. */
export function showActive(list: HTMLElement, seen: Overview): void {
  showOrNone(
    list,
    seen.active_transfers,
    seen.totals.active === 0 ? "No files are moving." : `${plural(seen.totals.active, "file")} of other VOs.`,
    (one) => String(one.transfer),
    () => {
      const file = link("", "");
      file.className = "file";
      const way = el("span", "hint");
      const figures = el("span", "hint figure");
      const bar = meter("arrived");
      return {
        node: el("li", "transfer", el("div", "spread", file, figures), bar.node, way),
        show(one: ActiveTransfer) {
          const from = place(one.source);
          const to = place(one.destination);
          setText(file, to.file);
          file.href = address("transfer", String(one.transfer));
          const speed = one.seconds > 0 ? one.moved_bytes / one.seconds : 0;
          const mean = speed > 0 ? `, ${rate(speed)} on average` : "";
          const size = one.size_bytes;
          const rest = size !== null && speed > 0 ? `, about ${duration((size - one.moved_bytes) / speed)} left` : "";
          setText(way, `${from.host} → ${to.host}, for ${duration(one.seconds)}${mean}${rest}`);
          setText(figures, size === null ? bytes(one.moved_bytes) : `${bytes(one.moved_bytes)} of ${bytes(size)}`);
          bar.show(one.moved_bytes, size ?? 0);
          bar.node.classList.remove("full");
          bar.node.classList.toggle("unknown", size === null);
        },
      };
    },
  );
}

/** Transfers that each storage element runs, of its limits. */
export function showStorages(list: HTMLElement, seen: Overview): void {
  showOrNone(
    list,
    seen.storages,
    "No storage element has been used yet.",
    (one) => one.storage,
    () => {
      const name = el("b", "file");
      const [out, into] = [direction("sends"), direction("receives")];
      return {
        node: el("li", "storage", name, out.node, into.node),
        show(one: StorageNow) {
          setText(name, host(one.storage));
          out.show(one.outbound_active, one.outbound_limit);
          into.show(one.inbound_active, one.inbound_limit);
        },
      };
    },
  );
}

function direction(name: string): { node: HTMLElement; show(active: number, limit: number): void } {
  const bar = meter(`${name}, of the limit`);
  const figures = el("span", "figure hint");
  return {
    node: el("div", "direction", el("span", "hint", name), bar.node, figures),
    show(active, limit) {
      bar.show(active, limit);
      setText(figures, `${count(active)} / ${count(limit)}`);
    },
  };
}

/** Kinds of failures of the last minutes, with how often. */
export function showFailures(note: HTMLElement, list: HTMLElement, report: Report): void {
  const { errors, transfers, error_percent, incidents } = report.quality;
  const share = error_percent === null ? "" : ` (${error_percent.toFixed(error_percent < 1 ? 2 : 0)} %)`;
  const since = report.complete_since;
  const partly = since === undefined ? "" : ` Only events since ${clock(since)} were counted.`;
  setText(
    note,
    `Last ${duration(report.seconds)}: ${plural(errors, "failed attempt")} in ` +
      `${plural(transfers, "transfer")}${share}; ${plural(report.transfers.failed, "file")} failed.${partly}`,
  );
  showOrNone(
    list,
    [...incidents].sort((a, b) => b.last - a.last).slice(0, 8),
    since === undefined ? "No failures in this period." : `No failures since ${clock(since)}.`,
    (one) => one.fingerprint,
    () => {
      const text = el("p", "message");
      const when = el("span", "hint");
      const errors = el("b", "figure bad");
      return {
        node: el("li", "failure", el("div", "spread", when, errors), text),
        show(one: FailureKind) {
          setText(errors, plural(one.errors, "failed attempt"));
          const from = one.errors > 1 ? `${clock(one.first)} to ${clock(one.last)}` : clock(one.last);
          setText(when, `${from}, at the ${one.side}, in ${one.phase}`);
          setText(text, one.example);
        },
      };
    },
  );
}

/** Where movers spent their time. */
export function showStages(note: HTMLElement, list: HTMLElement, report: Report): void {
  const told = report.stages.filter((stage) => stage.seconds !== null);
  setText(
    note,
    told.length === 0
      ? ""
      : `files that arrived in the last ${duration(report.seconds)}; seconds of all movers together`,
  );
  showOrNone(
    list,
    told,
    "No mover has reported in this period.",
    (stage) => stage.stage,
    () => {
      const name = el("span");
      const figures = el("span", "figure hint");
      const bar = meter("share of the time");
      return {
        node: el("li", "stage", name, bar.node, figures),
        show(stage) {
          setText(name, stage.stage);
          bar.show(stage.percent ?? 0, 100);
          bar.node.classList.remove("full");
          setText(figures, `${(stage.percent ?? 0).toFixed(1)} %`);
        },
      };
    },
  );
}

/** Drops of rates with their causes, the latest first. */
export function showDrops(list: HTMLElement, drops: RateChangeRow[]): void {
  showOrNone(
    list,
    [...drops].reverse().slice(0, 12),
    "No rate dropped while there was work.",
    (drop) => drop.id,
    () => {
      const head = link("", "");
      const size = el("span", "figure hint");
      const causes = el("ul", "causes");
      return {
        node: el("li", "drop", el("div", "spread", head, size), causes),
        show(drop: RateChangeRow) {
          head.href = address("drop", drop.id);
          setText(head, `${moment(drop.from)} to ${drop.is_over ? clock(drop.to) : "now"}: ${populationName(drop)}`);
          setText(size, `${rate(drop.low_bytes_per_second)} instead of ${rate(drop.usual_bytes_per_second)}`);
          causes.replaceChildren(...causeLines(drop));
        },
      };
    },
  );
}

export function causeLines(drop: RateChangeRow): HTMLElement[] {
  const lines = drop.causes.map((cause) => shareLine(cause.share_percent, cause.text));
  if (drop.unexplained_percent >= 5) lines.push(shareLine(drop.unexplained_percent, "not explained"));
  return lines;
}

function shareLine(share: number, text: string): HTMLElement {
  return el("li", "", el("b", "figure", `${share.toFixed(0)} %`), ` of the drop: ${text}`);
}

/** Whose rate it is: `a → b`, or the name of a VO, a server or a pool. */
export function populationName(drop: RateChangeRow): string {
  const names: string[] = [];
  const gather = (value: unknown): void => {
    if (typeof value === "string") names.push(host(value));
    else if (value !== null && typeof value === "object") Object.values(value).forEach(gather);
  };
  gather(drop.population);
  const { population } = drop;
  if ("kind" in population && names.length > 1) names.shift();
  return names.join(" → ");
}

/** A list, or one line that says that it is empty. */
export function showOrNone<T>(
  list: HTMLElement,
  items: T[],
  none: string,
  key: (item: T) => string,
  create: () => View<T>,
): void {
  showList(list, items, key, create);
  const note = list.querySelector(":scope > .none");
  if (items.length > 0) note?.remove();
  else if (note === null) list.append(el("li", "none", none));
  else setText(note, none);
}
