// The parts of the page below the chart. Each takes what the service said and shows it; none of them asks.

import { byId, el, meter, setText, showList, type View } from "./dom.ts";
import { bits, bytes, clock, count, duration, host, moment, place, plural, rate } from "./format.ts";
import { linkKey } from "./history.ts";
import type {
  ActiveTransfer,
  Incident,
  LinkNow,
  Overview,
  RateDrop,
  RateFactors,
  Report,
  StorageNow,
} from "./types.ts";

/** Rate, totals and one sentence that says how things stand. */
export function showHeadline(seen: Overview): void {
  const totals = seen.totals;
  setText(byId("site"), seen.site);
  setText(byId("rate-now"), rate(totals.rate_bytes_per_second));
  setText(byId("rate-bits"), `= ${bits(totals.rate_bytes_per_second)} of file data`);
  const items = [
    { name: "moving", value: `${count(totals.active)}`, note: `limit ${count(seen.agents.limit)}` },
    { name: "waiting", value: count(totals.submitted), note: "" },
    { name: "files finished", value: count(totals.finished), note: "" },
    { name: "files failed", value: count(totals.failed), note: "" },
    { name: "failed attempts", value: count(totals.failed_attempts), note: "" },
    { name: "canceled", value: count(totals.canceled), note: "" },
    { name: "moved", value: bytes(totals.moved_bytes), note: "" },
  ];
  showList(
    byId("totals"),
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
  setText(
    byId("counted-since"),
    `Counts of finished, failed, canceled and moved start at ${moment(seen.counted_since)}, when the service started.`,
  );
  setText(byId("summary"), summary(seen));
  document.title = `${rate(totals.rate_bytes_per_second)} · ${seen.site} · Penstock`;
}

function summary(seen: Overview): string {
  const { active, submitted } = seen.totals;
  if (active === 0 && submitted === 0) return "No files are moving or queued.";
  const moving =
    active === 0 ? "Nothing is moving" : `${plural(active, "file")} ${active === 1 ? "is" : "are"} moving`;
  if (submitted === 0) return `${moving}, none are queued.`;
  const most = [...seen.waiting].sort((a, b) => b.transfers - a.transfers)[0];
  const why =
    most === undefined
      ? ""
      : `${most.transfers < submitted ? ", most of them" : ""}: ${most.text}`;
  const queued = `${plural(submitted, "file")} ${submitted === 1 ? "is" : "are"} queued`;
  return `${moving}. ${queued}${why.replace(/\.?$/, ".")}`;
}

export interface LinkRow {
  link: LinkNow;
  selected: boolean;
  colour: number;
}

/** The table of links. `choose` gets the key of the link that was clicked. */
export function showLinks(rows: LinkRow[], choose: (key: string) => void): void {
  const table = byId("links");
  if (table.firstChild === null)
    table.append(linksHead(), el("div", "link-rows"), el("p", "none", "No link has been used yet."));
  const body = table.children[1] as HTMLElement;
  table.lastElementChild?.classList.toggle("hidden", rows.length > 0);
  showList(
    body,
    rows,
    (row) => linkKey(row.link),
    () => linkRow(choose),
  );
}

function linksHead(): HTMLElement {
  const names = [
    "link",
    "rate",
    "moving / limit",
    "waiting",
    "finished",
    "files failed",
    "reason of the next queued file",
  ];
  const head = el(
    "div",
    "link-row head",
    ...names.map((name) => withRole(el("span", "", name), "columnheader")),
  );
  return withRole(head, "row");
}

function withRole<T extends HTMLElement>(node: T, role: string): T {
  node.setAttribute("role", role);
  return node;
}

/** A cell with its column's name, which narrow screens show instead of the head. */
function cell(name: string, ...children: (Node | string)[]): HTMLElement {
  const node = withRole(el("span", `cell ${name}`, ...children), "cell");
  node.dataset["name"] = name;
  return node;
}

function linkRow(choose: (key: string) => void): View<LinkRow> {
  const swatch = el("span", "swatch");
  const name = el("span", "link-name");
  const button = el("button", "link-button", swatch, name);
  button.type = "button";
  const bar = meter("moving of the limit");
  const slots = el("span", "figure");
  const [speed, queued, finished, failed, why] = [el("span"), el("span"), el("span"), el("span"), el("span")];
  let key = "";
  button.addEventListener("click", () => choose(key));
  const cells = [
    cell("link", button),
    cell("rate", speed),
    cell("moving", bar.node, slots),
    cell("waiting", queued),
    cell("finished", finished),
    cell("failed", failed),
    cell("why", why),
  ];
  const node = withRole(el("div", "link-row", ...cells), "row");
  return {
    node,
    show({ link, selected, colour }) {
      key = linkKey(link);
      setText(name, `${host(link.source)} → ${host(link.destination)}`);
      button.title = `${link.source} → ${link.destination}`;
      button.setAttribute("aria-pressed", String(selected));
      swatch.className = `swatch series-${colour}`;
      setText(speed, rate(link.rate_bytes_per_second));
      bar.show(link.active, link.limit);
      setText(slots, `${count(link.active)} / ${count(link.limit)}`);
      const because = link.limit_because === null ? "" : `: ${link.limit_because}`;
      slots.title = `${count(link.limit)} of ${count(link.limit_max)} allowed${because}`;
      setText(queued, count(link.queued));
      setText(finished, count(link.finished));
      setText(failed, count(link.failed));
      failed.classList.toggle("bad", link.failed > 0);
      const last = link.last_failure === null ? "" : `; the last one: ${link.last_failure}`;
      failed.title = `${plural(link.failed_attempts, "failed attempt")}${last}`;
      setText(why, link.waiting_because ?? (link.queued > 0 ? "unknown" : "–"));
      why.parentElement?.classList.toggle("none", link.waiting_because === null && link.queued === 0);
      node.classList.toggle("selected", selected);
    },
  };
}

/** Reasons with the number of files that each keeps waiting. */
export function showWaiting(seen: Overview): void {
  const all = seen.waiting.reduce((sum, group) => sum + group.transfers, 0);
  const groups = [...seen.waiting].sort((a, b) => b.transfers - a.transfers);
  showOrNone(
    "waiting",
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
export function showActive(seen: Overview): void {
  const hidden = seen.totals.active - seen.active_transfers.length;
  setText(
    byId("active-title"),
    hidden > 0
      ? `Moving now (${seen.active_transfers.length} of ${count(seen.totals.active)})`
      : "Moving now",
  );
  showOrNone(
    "active",
    seen.active_transfers,
    "No files are moving.",
    (one) => String(one.transfer),
    () => {
      const file = el("b", "file");
      const way = el("span", "hint");
      const figures = el("span", "hint figure");
      const bar = meter("arrived");
      return {
        node: el("li", "transfer", el("div", "spread", file, figures), bar.node, way),
        show(one: ActiveTransfer) {
          const from = place(one.source);
          const to = place(one.destination);
          setText(file, to.file);
          file.title = `transfer ${one.transfer} of job ${one.job}`;
          const mean = one.seconds > 0 ? `, ${rate(one.moved_bytes / one.seconds)} on average` : "";
          setText(way, `${from.host} → ${to.host}, for ${duration(one.seconds)}${mean}`);
          const size = one.size_bytes;
          setText(
            figures,
            size === null ? bytes(one.moved_bytes) : `${bytes(one.moved_bytes)} of ${bytes(size)}`,
          );
          bar.show(one.moved_bytes, size ?? 0);
          bar.node.classList.remove("full");
          bar.node.classList.toggle("unknown", size === null);
        },
      };
    },
  );
}

/** Slots of each storage element, over all its links. */
export function showStorages(seen: Overview): void {
  showOrNone(
    "storages",
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

function direction(word: string): { node: HTMLElement; show(active: number, limit: number): void } {
  const bar = meter(`${word}, of the limit`);
  const figures = el("span", "figure hint");
  return {
    node: el("div", "direction", el("span", "hint", word), bar.node, figures),
    show(active, limit) {
      bar.show(active, limit);
      setText(figures, `${count(active)} / ${count(limit)}`);
    },
  };
}

/** What went wrong lately, one line per kind of failure, and how often. */
export function showFailures(report: Report): void {
  const { errors, transfers, error_percent: percent, incidents } = report.quality;
  const span = duration(report.seconds);
  const share = percent === null ? "" : ` (${percent.toFixed(percent < 1 ? 2 : 0)} %)`;
  const since = report.complete_since;
  const partly = since === undefined ? "" : ` Only events since ${clock(since)} were counted.`;
  setText(
    byId("quality"),
    `Last ${span}: ${plural(errors, "failed attempt")} in ${plural(transfers, "transfer")}${share}; ` +
      `${plural(report.transfers.failed, "file")} failed.${partly}`,
  );
  const latest = [...incidents].sort((a, b) => b.last - a.last).slice(0, 8);
  showOrNone(
    "failures",
    latest,
    since === undefined ? "No failures in this period." : `No failures since ${clock(since)}.`,
    (one) => one.fingerprint,
    () => {
      const text = el("p", "message");
      const when = el("span", "hint");
      const errors = el("b", "figure bad");
      return {
        node: el("li", "failure", el("div", "spread", when, errors), text),
        show(one: Incident) {
          setText(errors, plural(one.errors, "failed attempt"));
          const from = one.errors > 1 ? `${clock(one.first)} to ${clock(one.last)}` : clock(one.last);
          setText(when, `${from}, at the ${one.side}, in ${one.phase}`);
          setText(text, one.example);
        },
      };
    },
  );
}

/** Stretches well below the usual rate, and which factor of the rate fell. */
export function showDrops(report: Report): void {
  const latest = [...report.drops].reverse().slice(0, 6);
  showOrNone(
    "drops",
    latest,
    "The rate did not drop below 70 % of the usual one.",
    (drop) => String(drop.from),
    () => {
      const head = el("b");
      const size = el("span", "figure hint");
      const causes = el("ul", "causes");
      return {
        node: el("li", "drop", el("div", "spread", head, size), causes),
        show(drop: RateDrop) {
          setText(head, `${clock(drop.from)} to ${clock(drop.to)}`);
          const errors = drop.errors > 0 ? `, ${plural(drop.errors, "failed attempt")}` : "";
          setText(size, `${megabits(drop.seen)} instead of ${megabits(drop.usual)}${errors}`);
          const lines = drop.causes
            .filter((cause) => cause.share_percent >= 5)
            .map((cause) =>
              el(
                "li",
                "",
                el("b", "figure", `${cause.share_percent.toFixed(0)} %`),
                ` of the drop: ${causeText(cause.cause, drop)}`,
              ),
            );
          causes.replaceChildren(...lines);
        },
      };
    },
  );
}

const megabits = (factors: RateFactors): string => rate((factors.megabits_per_second * 1e6) / 8);

function causeText(cause: RateDrop["causes"][number]["cause"], { seen, usual }: RateDrop): string {
  const moving = (factors: RateFactors): string => (factors.limit * factors.in_use).toFixed(1);
  const perFile = (factors: RateFactors): string => rate((factors.megabits_per_second_per_file * 1e6) / 8);
  const atOnce = `${moving(seen)} instead of ${moving(usual)} files at once`;
  const limits = `${seen.limit.toFixed(1)} instead of ${usual.limit.toFixed(1)}`;
  switch (cause) {
    case "lower_limit":
      return `lower limit of files at once (${limits})`;
    case "not_fed":
      return `${atOnce}, although files were queued and slots were free`;
    case "nothing_waited":
      return `${atOnce}, because none were queued`;
    case "slower_files":
      return `slower files (${perFile(seen)} each instead of ${perFile(usual)})`;
  }
}

/** Where the movers spent their time, and the line of figures at the foot of the page. */
export function showStages(report: Report): void {
  const told = report.stages.filter((stage) => stage.seconds !== null);
  setText(
    byId("stages-note"),
    told.length === 0
      ? ""
      : `files that arrived in the last ${duration(report.seconds)}; seconds of all movers together`,
  );
  showOrNone(
    "stages",
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
  const mean = report.bandwidth === null ? "" : ` = ${report.bandwidth.megabits_per_second.toFixed(2)} Mb/s`;
  const since = report.complete_since;
  const partly = since === undefined ? "" : `; only events since ${clock(since)} were counted`;
  setText(
    byId("report-line"),
    `Last ${duration(report.seconds)}, ` +
      `as the transfer service saw it: ${plural(report.transfers.finished, "file")} arrived, ${bytes(report.bytes)}${mean}${partly}`,
  );
}

/** A list, or one line that says that it is empty. */
function showOrNone<T>(
  id: string,
  items: T[],
  none: string,
  key: (item: T) => string,
  create: () => View<T>,
): void {
  const list = byId(id);
  showList(list, items, key, create);
  const note = list.querySelector(":scope > .none");
  if (items.length > 0) note?.remove();
  else if (note === null) list.append(el("li", "none", none));
}
