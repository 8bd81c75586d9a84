// Incidents: what went wrong, by cause, with the text of a ticket; and one drop of a rate with its evidence.

import * as api from "../api.ts";
import { el } from "../dom.ts";
import { clock, count, moment, plural, rate } from "../format.ts";
import { card, facts, labelled, link, type Page, pageHeading, scrolled, select, twin } from "../page.ts";
import { causeLines, populationName } from "../panels.ts";
import { address, replaceQuery, type Route, route } from "../route.ts";
import type { IncidentList, IncidentRow } from "../types.ts";
import { told } from "./refusal.ts";

const DAYS: [value: string, text: string][] = [
  ["1", "24 h"],
  ["7", "7 d"],
  ["30", "30 d"],
  ["40", "40 d"],
];

export class IncidentsPage implements Page {
  title = "Incidents";
  every = 60_000;
  readonly node = el("div", "page");
  private readonly days = select(DAYS, "7");
  private readonly list = el("ul", "plain");
  private readonly note = el("p", "hint");
  private readonly months = el("div");

  constructor() {
    this.list.id = "incidents";
    this.days.addEventListener("change", () => {
      replaceQuery({ days: this.days.value });
      void this.update().catch(() => undefined);
    });
    this.node.append(
      card("Incidents", el("div", "controls", labelled("Within", this.days)), this.note, this.list, twin("/api/v1/incidents")),
      card("By month", el("p", "hint", "Shares of the incidents of each month, by who has to act."), this.months),
    );
    this.follow(route());
  }

  follow({ query }: Route): boolean {
    this.days.value = query.get("days") ?? "7";
    return true;
  }

  async update(): Promise<void> {
    this.note.textContent ||= "reading the record …";
    const seen = await api.incidents({ seconds: Number(this.days.value) * 86_400, until: null });
    const newest = [...seen.incidents].sort((a, b) => Number(b.is_open) - Number(a.is_open) || b.last_seen - a.last_seen);
    this.note.textContent = noteOf(seen);
    this.list.replaceChildren(...newest.map(incidentRow));
    this.months.replaceChildren(monthTable(seen));
  }
}

function noteOf(seen: IncidentList): string {
  const open = seen.incidents.filter((one) => one.is_open).length;
  const since = seen.complete_since === undefined ? "" : ` The record is complete since ${moment(seen.complete_since)}.`;
  return `${plural(seen.incidents.length, "incident")}, ${count(open)} open.${since}`;
}

function incidentRow(one: IncidentRow): HTMLElement {
  const until = one.is_open ? "now" : moment(one.last_seen);
  return el(
    "li",
    one.is_open ? "failure" : "drop",
    el("div", "spread", link(address("incident", one.id), one.text), el("b", "figure", one.is_open ? "open" : "over")),
    el(
      "p",
      "hint",
      `${one.class}; ${moment(one.first_seen)} to ${until}; ${plural(one.failed_attempts, "failed attempt")}, ` +
        `${plural(one.drops, "drop")}, ${plural(one.links, "link")}`,
    ),
  );
}

function monthTable(seen: IncidentList): HTMLElement {
  if (seen.months.length === 0) return el("p", "none", "No incident.");
  const head = el("tr", "", ...["month", "class", "incidents", "share", "failed attempts"].map((name) => el("th", "", name)));
  const body = seen.months.flatMap((month) =>
    month.classes.map((one) =>
      el(
        "tr",
        "",
        el("td", "", month.month),
        el("td", "", one.class),
        el("td", "number", count(one.incidents)),
        el("td", "number", `${one.share_percent.toFixed(0)} %`),
        el("td", "number", count(one.failed_attempts)),
      ),
    ),
  );
  return scrolled("Incidents by month", el("table", "table", el("caption", "hidden-text", "Incidents by month"), el("thead", "", head), el("tbody", "", ...body)));
}

export class IncidentPage implements Page {
  title: string;
  every = null;
  readonly node = el("div", "page");
  private readonly answer = el("section", "card");

  constructor(private readonly id: string) {
    this.title = `Incident ${id}`;
    this.node.append(this.answer);
  }

  async update(): Promise<void> {
    try {
      const one = await api.incident(this.id);
      const rows: [string, Node | string][] = [
        ["who has to act", one.class],
        ["since", moment(one.first_seen)],
        ["last seen", one.is_open ? `${moment(one.last_seen)}; it goes on` : `${moment(one.last_seen)}; it is over`],
        ["failed attempts", count(one.failed_attempts)],
        ["links", el("ul", "", ...one.link_names.map((name) => el("li", "", `${name.source} → ${name.destination}`)))],
        ["request", one.request],
        ["verification", one.verification],
      ];
      this.answer.replaceChildren(
        pageHeading(one.text),
        facts(rows),
        ...(one.evidence.length === 0 ? [] : [el("h3", "", "Evidence"), el("ul", "plain", ...one.evidence.map((row) => el("li", "", row.text)))]),
        el("h3", "", "Text for a ticket"),
        el("pre", "ticket", one.ticket),
        twin(`/api/v1/incidents/${this.id}`),
      );
    } catch (why) {
      this.answer.replaceChildren(told("incident", this.id, why));
    }
  }
}

export class DropPage implements Page {
  title: string;
  every = null;
  readonly node = el("div", "page");
  private readonly answer = el("section", "card");

  constructor(private readonly id: string) {
    this.title = `Drop ${id}`;
    this.node.append(this.answer);
  }

  async update(): Promise<void> {
    try {
      const drop = await api.rateChange(this.id);
      const list = (texts: string[]): HTMLElement => el("ul", "plain", ...texts.map((text) => el("li", "", text)));
      const parts = (title: string, texts: string[]): HTMLElement[] => (texts.length === 0 ? [] : [el("h3", "", title), list(texts)]);
      const until = drop.is_over ? clock(drop.to) : "now";
      const margin = Math.max(drop.to - drop.from, 600_000);
      const seconds = Math.round((drop.to - drop.from + 2 * margin) / 1000);
      const curve = address("overview", "", { range: String(seconds), until: String(drop.to + margin) });
      this.answer.replaceChildren(
        pageHeading(`${populationName(drop)}: ${rate(drop.low_bytes_per_second)} instead of ${rate(drop.usual_bytes_per_second)}`),
        el("p", "hint", `${moment(drop.from)} to ${until}. `, link(curve, "its curve")),
        el("ul", "causes plain", ...causeLines(drop)),
        ...parts("Evidence", drop.details.flatMap((detail) => detail.evidence.map((row) => row.text))),
        ...parts("What would help", drop.details.flatMap((detail) => (detail.fix === undefined ? [] : [`${detail.fix.text}${detail.fix.gain_percent === undefined ? "" : `: ${detail.fix.gain_percent.toFixed(0)} % more`}`]))),
        ...parts("What fell", drop.falls.map((fall) => `${fall.text} (${fall.share_percent.toFixed(0)} %)`)),
        ...parts("Where the difference lies", drop.carriers.flatMap((row) => row.elements.map((one) => `${row.dimension}: ${one.name} (${one.share_percent.toFixed(0)} %)`))),
        ...parts("Not measured", drop.missing.map((one) => one.text)),
        twin(`/api/v1/explain/${this.id}`),
      );
    } catch (why) {
      this.answer.replaceChildren(told("drop", this.id, why));
    }
  }
}
