// One job: how far it is, what failed first, and each file by its name.

import * as api from "../api.ts";
import { el, meter, setText } from "../dom.ts";
import { count, moment, place, plural } from "../format.ts";
import { button, isInUse, link, type Page, pageHeading, twin } from "../page.ts";
import { address } from "../route.ts";
import type { FoundTransfer } from "../types.ts";
import { told } from "./refusal.ts";

const FILES_MAX = 500;
const ENDED = new Set(["FINISHED", "FAILED", "CANCELED"]);
/** What an operator looks for comes first. */
const ORDER = ["FAILED", "ACTIVE", "STARTED", "STAGING", "SUBMITTED", "ARCHIVING", "CANCELED", "NOT_USED", "FINISHED"];

export class JobPage implements Page {
  title: string;
  every: number | null = 5000;
  readonly node = el("div", "page");
  private readonly answer = el("div");
  private readonly done = el("p", "hint");
  private readonly bar = meter("files that have ended");
  private isFirst = true;

  constructor(private readonly id: string) {
    this.title = `Job ${id.slice(0, 8)}`;
    this.answer.id = "find-answer";
    this.node.append(el("section", "card", this.answer, twin(`/api/v1/jobs/${id}/explain`)));
  }

  async update(): Promise<void> {
    try {
      const question = new URLSearchParams({ q: this.id, within: "0", limit: String(FILES_MAX) });
      const [explained, found, counts] = await Promise.all([api.explain(this.id), api.find(question), api.jobCounts(this.id)]);
      const all = Object.values(counts.states).reduce((sum, one) => sum + one, 0);
      const ended = Object.entries(counts.states).reduce((sum, [state, one]) => (ENDED.has(state) ? sum + one : sum), 0);
      this.bar.show(ended, all);
      this.bar.node.classList.remove("full");
      setText(this.done, `${count(ended)} of ${plural(all, "file")} ended, ${count(counts.states["FAILED"] ?? 0)} failed`);
      const texts = new Map(explained.files.map((file) => [file.file_id, file.text]));
      const rank = (one: FoundTransfer): number => ORDER.indexOf(one.state);
      const files = [...found.transfers].sort((a, b) => rank(a) - rank(b) || a.transfer - b.transfer);
      const state = el("b", `state ${explained.job_state.toLowerCase()}`, explained.job_state);
      const heading = pageHeading(`Job ${this.id}`);
      const job = counts.job;
      const by = `submitted ${moment(Date.parse(`${job.submit_time}Z`))} by ${job.user_dn} for ${job.vo_name}, priority ${job.priority}`;
      const more = all - files.length;
      if (isInUse(this.answer)) return;
      const wasAnnounced = this.isFirst || this.answer.contains(document.activeElement);
      this.answer.replaceChildren(
        heading,
        el("p", "", "The job is ", state, "."),
        el("p", "hint", by),
        this.bar.node,
        this.done,
        ...explained.lines.slice(1).map((line) => el("p", "", line)),
        ...this.actions(explained.job_state),
        el("ul", "plain files", ...files.map((one) => fileRow(one, texts.get(one.transfer)))),
        ...(more > 0 ? [el("p", "hint", `and ${plural(more, "more file")}: `, link(address("find", "", { q: this.id, within: "0" }), "all of its files"))] : []),
      );
      if (wasAnnounced) heading.focus({ preventScroll: true });
      if (ENDED.has(explained.job_state) || explained.job_state === "FINISHEDDIRTY") this.every = null;
    } catch (why) {
      this.answer.replaceChildren(told("job", this.id, why));
      this.every = null;
    }
    this.isFirst = false;
  }

  /** The service decides whether the reader may. */
  private actions(state: string): HTMLElement[] {
    if (ENDED.has(state) || state === "FINISHEDDIRTY") return [];
    const note = el("span", "hint");
    const sure: HTMLButtonElement = button("cancel this job for good", () => {
      sure.disabled = true;
      api
        .act("DELETE", `/jobs/${encodeURIComponent(this.id)}`)
        .then(() => setText(note, "canceled"))
        .catch((why: unknown) => setText(note, why instanceof Error ? why.message : "not canceled"));
    });
    sure.hidden = true;
    sure.classList.add("danger");
    const ask: HTMLButtonElement = button("cancel …", () => {
      sure.hidden = !sure.hidden;
      setText(note, sure.hidden ? "" : "Files that have arrived stay. This cannot be undone: ");
      if (!sure.hidden) sure.focus();
    });
    return [el("p", "ranges", ask, note, sure)];
  }
}

function fileRow(one: FoundTransfer, text: string | undefined): HTMLElement {
  const name = link(address("transfer", String(one.transfer)), place(one.destination).file);
  name.title = `${one.source} → ${one.destination}`;
  const reason = text ?? one.reason ?? "";
  return el(
    "li",
    "",
    el("span", `state ${one.state.toLowerCase()}`, one.state),
    el("span", "", name),
    el("span", `grow hint${one.state === "FAILED" ? " bad" : ""}`, reason),
  );
}
