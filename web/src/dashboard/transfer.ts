// The story of one transfer: a waterfall of where its time went, and each step with its reason.

import * as api from "../api.ts";
import { el } from "../dom.ts";
import { bytes, duration, moment, rate } from "../format.ts";
import { facts, isInUse, link, type Page, pageHeading, twin } from "../page.ts";
import { address } from "../route.ts";
import type { Story } from "../types.ts";
import { told } from "./refusal.ts";

export class TransferPage implements Page {
  title: string;
  every: number | null = 3000;
  readonly node = el("div", "page");
  private readonly answer = el("div");
  private isFirst = true;

  constructor(private readonly number: string) {
    this.title = `Transfer ${number}`;
    this.answer.id = "find-answer";
    this.node.append(el("section", "card", this.answer, twin(`/api/v1/transfers/${number}`)));
  }

  async update(): Promise<void> {
    try {
      const story = await api.story(this.number);
      const heading = pageHeading(`Transfer ${story.transfer}`);
      if (isInUse(this.answer)) return;
      const wasAnnounced = this.isFirst || this.answer.contains(document.activeElement);
      this.answer.replaceChildren(heading, storyFacts(story), waterfall(story), steps(story));
      if (wasAnnounced) heading.focus({ preventScroll: true });
      if (story.finished !== null) this.every = null;
    } catch (why) {
      this.answer.replaceChildren(told("transfer", this.number, why));
      this.every = null;
    }
    this.isFirst = false;
  }
}

function storyFacts(story: Story): HTMLElement {
  const took = story.started !== null && story.finished !== null ? (story.finished - story.started) / 1000 : null;
  const rows: [string, Node | string][] = [
    ["state", el("b", `state ${story.state.toLowerCase()}`, story.state)],
    ["from", story.source],
    ["to", story.destination],
    ["size", story.size_bytes === null ? "not known" : bytes(story.size_bytes)],
    ["submitted", `${moment(story.submitted)} by ${story.user} for ${story.vo}`],
    ["activity", `${story.activity}, priority ${story.priority}`],
    ["job", el("span", "", link(address("job", story.job), story.job), ` is ${story.job_state}`)],
  ];
  if (story.starts !== null) {
    const starts = story.starts;
    rows.push(["expected start", "about" in starts ? `about ${moment(starts.about)}` : `not before ${moment(starts.not_before)}`]);
  }
  if (took !== null) {
    const speed = story.state === "FINISHED" && story.size_bytes !== null && took > 0 ? `, ${rate(story.size_bytes / took)}` : "";
    rows.push(["last attempt", `${duration(took)}${speed}`]);
  }
  return facts(rows);
}

interface Span {
  name: string;
  from: number;
  to: number;
  kind: string;
}

/** Stretches of time between the steps, and within the last attempt the stages of its mover. */
function spansOf(story: Story): Span[] {
  const end = story.finished ?? Math.max(Date.now(), ...story.steps.map((step) => step.at));
  const spans: Span[] = [];
  let [begin, name, kind] = [story.submitted, "queue", "queue"];
  let attempts = 0;
  const close = (at: number): void => {
    // That it did not queue is worth a line; other stretches without a length are none.
    if (at > begin || name === "queue") spans.push({ name, from: begin, to: at, kind });
  };
  for (const step of story.steps) {
    const isStart = step.kind === "attempted" && kind !== "attempt";
    if (isStart) {
      close(step.at);
      attempts += 1;
      [begin, name, kind] = [step.at, `attempt ${attempts}`, "attempt"];
    } else if (step.kind === "failed" || step.kind === "stopped" || step.kind === "arrived") {
      close(step.at);
      [begin, name, kind] = [step.at, step.kind === "arrived" ? "afterwards" : "queue, to be tried again", "queue"];
    }
  }
  if (story.finished === null || end > begin) close(end);
  return spans;
}

function waterfall(story: Story): HTMLElement {
  const spans = spansOf(story);
  const from = story.submitted;
  const to = Math.max(from + 1, ...spans.map((span) => span.to));
  const rows = spans.map((span) => waterRow(span.name, span.kind, span.from - from, span.to - span.from, to - from));
  const attempt = [...spans].reverse().find((span) => span.kind === "attempt");
  const stages = (story.stages ?? []).filter((stage) => stage.microseconds > 0);
  const list = el("ol", "waterfall", ...rows);
  const parts: HTMLElement[] = [el("h3", "", "Where the time went"), list];
  if (attempt !== undefined && stages.length > 0) {
    const length = attempt.to - attempt.from;
    // Stages overlap: each bar is the stage's own time, drawn from the begin of the attempt.
    const whole = Math.max(length, ...stages.map((stage) => stage.microseconds / 1000));
    const bars = stages.map(({ stage, microseconds }) => waterRow(stage, "stage", 0, microseconds / 1000, whole));
    parts.push(
      el("h3", "", `Stages of ${attempt.name} (${duration(length / 1000)})`),
      el("p", "hint", "As the mover measured them where the bytes passed. Stages overlap, so they may add up to more than the attempt."),
      el("ol", "waterfall", ...bars),
    );
  }
  return el("div", "", ...parts);
}

function waterRow(name: string, kind: string, from: number, length: number, whole: number): HTMLElement {
  const bar = el("span", `span ${kind}`);
  bar.style.marginInlineStart = `${((100 * from) / whole).toFixed(2)}%`;
  bar.style.width = `${Math.max((100 * length) / whole, 0.4).toFixed(2)}%`;
  return el("li", "", el("span", "", name), el("span", "lane", bar), el("span", "figure hint", length < 1000 ? `${length.toFixed(length < 10 ? 1 : 0)} ms` : duration(length / 1000)));
}

function steps(story: Story): HTMLElement {
  const items = story.steps.map((step) => {
    const time = el("time", "hint figure", moment(step.at, true));
    time.dateTime = new Date(step.at).toISOString();
    return el("li", `step ${step.kind}`, time, el("span", "", step.text));
  });
  return el("div", "", el("h3", "", "Steps"), el("ol", "steps", ...items));
}
