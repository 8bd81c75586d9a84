// Jobs that are open or ended lately, with what each VO and activity has queued and running, and the way to one transfer.

import * as api from "../api.ts";
import { el } from "../dom.ts";
import { count, host } from "../format.ts";
import { button, card, labelled, link, type Page, scrolled, select, twin } from "../page.ts";
import { address, replaceQuery, type Route, route } from "../route.ts";
import type { GroupCounts, JobRow } from "../types.ts";
import { findForm } from "./find.ts";

const STATES: [value: string, text: string][] = [
  ["", "open and ended"],
  ["SUBMITTED", "waiting"],
  ["ACTIVE", "moving"],
  ["STAGING", "waiting for tape"],
  ["FINISHED", "finished"],
  ["FINISHEDDIRTY", "finished with failures"],
  ["FAILED", "failed"],
  ["CANCELED", "canceled"],
];
const PAGE = 25;

export class JobsPage implements Page {
  title = "Jobs";
  every = 5000;
  readonly node = el("div", "page");
  private readonly body = el("tbody");
  private readonly note = el("p", "hint");
  private readonly vos = el("div");
  private readonly activities = el("div");
  private readonly state = select(STATES, "");
  private readonly hours = select([["1", "last hour"], ["24", "last 24 h"], ["168", "last 7 d"]], "1");
  private readonly pager = el("div", "ranges");
  private page = 1;

  constructor() {
    for (const field of [this.state, this.hours])
      field.addEventListener("change", () => {
        this.page = 1;
        replaceQuery({ state: this.state.value || null, hours: this.hours.value, page: null });
        void this.update().catch(() => undefined);
      });
    const names = ["job", "state", "VO", "user", "submitted (UTC)", "from", "to", "why"];
    const head = el("tr", "", ...names.map((name) => heading(name)));
    const table = el("table", "table jobs", el("caption", "hidden-text", "Jobs"), el("thead", "", head), this.body);
    this.node.append(
      card("Find a transfer or a job", findForm(new URLSearchParams())),
      el("div", "columns", card("By VO", this.vos), card("By activity", this.activities)),
      card(
        "Jobs",
        el("div", "controls", labelled("State", this.state), labelled("Ended within", this.hours)),
        scrolled("Jobs", table),
        this.pager,
        this.note,
        twin("/fts3/ftsmon/jobs"),
      ),
    );
    this.follow(route());
  }

  follow({ query }: Route): boolean {
    this.state.value = query.get("state") ?? "";
    this.hours.value = query.get("hours") ?? "1";
    this.page = Math.max(1, Number(query.get("page") ?? 1) || 1);
    return true;
  }

  async update(): Promise<void> {
    const asked = new URLSearchParams({
      time_window: this.hours.value,
      page: String(this.page),
      page_size: String(PAGE),
    });
    if (this.state.value !== "") asked.set("state", this.state.value);
    const [jobs, vos, activities] = await Promise.all([api.jobs(asked), api.byVo(), api.byActivity()]);
    const rows = jobs.items.map(jobRow);
    this.body.replaceChildren(...rows);
    this.note.textContent = jobs.count === 0 ? "No job is open or ended within this time." : `${count(jobs.count)} jobs.`;
    this.showPager(jobs.page, jobs.pageCount);
    this.vos.replaceChildren(groupTable("VO", vos.vos));
    this.activities.replaceChildren(groupTable("activity", activities.activities));
  }

  private showPager(page: number, pages: number): void {
    const turn = (to: number): void => {
      this.page = to;
      replaceQuery({ page: to === 1 ? null : String(to) });
      void this.update().catch(() => undefined);
    };
    const [back, on] = [button("◀ newer", () => turn(page - 1)), button("older ▶", () => turn(page + 1))];
    back.disabled = page <= 1;
    on.disabled = page >= pages;
    this.pager.replaceChildren(...(pages > 1 ? [back, el("span", "hint", `page ${page} of ${pages}`), on] : []));
  }
}

function heading(text: string, name = ""): HTMLElement {
  const node = el("th", name, text);
  node.scope = "col";
  return node;
}

function jobRow(job: JobRow): HTMLElement {
  const name = link(address("job", job.job_id), job.job_id.slice(0, 8));
  name.title = job.job_id;
  const end = (storage: string | null): string => (storage === null ? "several" : host(storage));
  return el(
    "tr",
    "",
    el("td", "", name),
    el("td", "", el("span", `state ${job.job_state.toLowerCase()}`, job.job_state)),
    el("td", "", job.vo_name),
    el("td", "", job.user_dn),
    el("td", "figure", job.submit_time.replace("T", " ").slice(0, 19)),
    el("td", "", end(job.source_se)),
    el("td", "", end(job.dest_se)),
    el("td", "why", job.reason ?? ""),
  );
}

function groupTable(what: string, groups: Record<string, GroupCounts>): HTMLElement {
  const rows = Object.entries(groups).sort((a, b) => b[1].submitted - a[1].submitted || a[0].localeCompare(b[0]));
  if (rows.length === 0) return el("p", "none", "No transfer is open or ended in the last hour.");
  const names = [what, "waiting", "moving", "finished", "failed", "canceled"];
  const head = el("tr", "", ...names.map((name, n) => heading(name, n === 0 ? "" : "number")));
  const body = rows.map(([name, one]) => {
    const first = el("th", "", name);
    first.scope = "row";
    const numbers = [one.submitted + one.staging, one.active, one.finished, one.failed, one.canceled];
    return el("tr", "", first, ...numbers.map((value, n) => el("td", `number${n === 3 && value > 0 ? " bad" : ""}`, count(value))));
  });
  return scrolled(`Transfers by ${what}`, el("table", "table", el("caption", "hidden-text", `Transfers by ${what}`), el("thead", "", head), el("tbody", "", ...body)));
}
