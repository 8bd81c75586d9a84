// What is set, and who changed it when. For those who may look at settings.

import * as api from "../api.ts";
import { el } from "../dom.ts";
import { count } from "../format.ts";
import { card, type Page, scrolled, twin } from "../page.ts";
import type { AuditRow } from "../types.ts";
import { told } from "./refusal.ts";

const AUDIT_ROWS = 200;

/** Names as the service writes them, with units where it has them. */
const SECTIONS: [title: string, path: string][] = [
  ["Bans of storage elements", "/ban/se"],
  ["Link rules", "/config/links"],
  ["Storage elements", "/config/se"],
  ["Shares of VOs", "/config/shares"],
  ["Activity shares", "/config/activity_shares"],
  ["Defaults for jobs", "/config/global"],
];

export class ConfigurationPage implements Page {
  title = "Configuration";
  every = 30_000;
  readonly node = el("div", "page");
  private readonly sections = SECTIONS.map(([title, path]) => ({ path, body: el("div"), title }));
  private readonly audit = el("div");

  constructor() {
    this.audit.id = "audit";
    this.node.append(
      ...this.sections.map(({ title, path, body }) => card(title, body, twin(path))),
      card("Changes", el("p", "hint", "Changes of settings and bans, and login and view links that were made, used or revoked; newest first. Times are UTC."), this.audit, twin("/config/audit")),
    );
  }

  async update(): Promise<void> {
    await Promise.all([
      ...this.sections.map(async ({ path, body }) => {
        await shown(body, api.configuration(path).then(valueTable));
      }),
      shown(this.audit, api.audit(AUDIT_ROWS).then(auditTable)),
    ]);
  }
}

async function shown(body: HTMLElement, asked: Promise<HTMLElement>): Promise<void> {
  try {
    const table = await asked;
    if (body.firstElementChild?.isEqualNode(table) !== true) body.replaceChildren(table);
  } catch (why) {
    body.replaceChildren(told("setting", "", why));
  }
}

/** A list of objects as a table, one column for each name that has a value somewhere. */
function valueTable(value: unknown): HTMLElement {
  const rows = rowsOf(value);
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => row[name] !== null && row[name] !== "")))];
  if (rows.length === 0 || names.length === 0) return el("p", "none", "Nothing is set.");
  const head = el("tr", "", ...names.map((name) => el("th", "", name.replace(/_/g, " "))));
  const body = rows.map((row) => el("tr", "", ...names.map((name) => el("td", "", text(row[name])))));
  return scrolled("Settings", el("table", "table", el("thead", "", head), el("tbody", "", ...body)));
}

function rowsOf(value: unknown): Record<string, unknown>[] {
  const isRow = (one: unknown): one is Record<string, unknown> => one !== null && typeof one === "object";
  if (Array.isArray(value)) return value.map((one: unknown) => (isRow(one) ? one : { name: one }));
  if (!isRow(value)) return [];
  return Object.entries(value).map(([name, one]) => (isRow(one) && !Array.isArray(one) ? { name, ...one } : { name, value: one }));
}

function text(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : value.toFixed(2);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function auditTable(rows: AuditRow[]): HTMLElement {
  if (rows.length === 0) return el("p", "none", "Nothing was changed.");
  const head = el("tr", "", ...["when", "who", "what", "change"].map((name) => el("th", "", name)));
  const body = rows.map((row) =>
    el("tr", "", el("td", "figure", row.datetime.replace("T", " ")), el("td", "", row.dn), el("td", "", row.action), el("td", "", differences(row))),
  );
  return scrolled("Changes", el("table", "table", el("caption", "hidden-text", "Changes"), el("thead", "", head), el("tbody", "", ...body)));
}

/** What differs between before and after, by name. */
function differences(row: AuditRow): string {
  const [before, after] = [row.old ?? {}, row.new ?? {}];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changed = names.filter((name) => JSON.stringify(before[name] ?? null) !== JSON.stringify(after[name] ?? null));
  const told = changed.map((name) => {
    const [was, is] = [text(before[name]), text(after[name])];
    return row.old === null ? `${name} ${is}` : `${name} ${was || "none"} → ${is || "none"}`;
  });
  return told.length === 0 ? row.config : told.join("; ");
}
