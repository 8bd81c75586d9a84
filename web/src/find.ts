// Finds transfers and tells their stories. Where the reader is stands in the address (`#/find?q=…`, `#/transfer/7`,
// `#/job/…`), so that it can be sent to others and the browser's own buttons lead back.

import * as api from "./api.ts";
import { NoAnswer } from "./api.ts";
import { byId, el } from "./dom.ts";
import { bytes, count, duration, moment, plural, rate } from "./format.ts";
import { explanation } from "./job.ts";
import type { FoundPage, FoundTransfer, Story } from "./types.ts";

const JOB = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

const form = byId("find-form") as HTMLFormElement;
const words = byId("find-words") as HTMLInputElement;
const state = byId("find-state") as HTMLSelectElement;
const within = byId("find-within") as HTMLSelectElement;
const answer = byId("find-answer");

/** The number of the latest question: an answer that comes later than that of another question is dropped. */
let latest = 0;

/** Follows the address from now on, each time it changes. */
export function startFinder(): { follow(): void } {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = words.value.trim();
    const place = JOB.test(text) ? `#/job/${text}` : `#/find?${question(text)}`;
    if (location.hash === place) follow();
    else location.hash = place;
  });
  addEventListener("hashchange", () => {
    follow();
    byId("find").scrollIntoView({ block: "start" });
  });
  return { follow };
}

function question(text: string): URLSearchParams {
  const asked = new URLSearchParams();
  if (text !== "") asked.set("q", text);
  if (state.value !== "") asked.set("state", state.value);
  asked.set("within", within.value);
  return asked;
}

function follow(): void {
  const [path = "", query = ""] = location.hash.slice(1).split("?", 2);
  const [, kind, name = ""] = path.split("/");
  if (kind === "find") void search(new URLSearchParams(query));
  else if (kind === "transfer") void tell(() => api.story(decoded(name)).then(told), "transfer", decoded(name));
  else if (kind === "job") void tell(() => job(decoded(name)), "job", decoded(name));
  else {
    latest += 1;
    answer.replaceChildren();
  }
}

/** A part of an address that is no good encoding stands for itself. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function tell(ask: () => Promise<Node[]>, what: string, name: string): Promise<void> {
  latest += 1;
  const mine = latest;
  answer.replaceChildren(el("p", "hint", "searching …"));
  const shown = await ask().catch((why: unknown) => [refusal(what, name, why)]);
  if (mine !== latest) return;
  answer.replaceChildren(...shown);
  const heading = answer.querySelector<HTMLElement>("h3");
  heading?.focus({ preventScroll: true });
}

function refusal(what: string, name: string, why: unknown): HTMLElement {
  if (why instanceof NoAnswer && why.status === 404)
    return el("p", "bad", `There is no ${what} ${name}: check the spelling, or ask the service that it was submitted to.`);
  return el("p", "bad", why instanceof Error ? why.message : "no answer");
}

function heading(...text: (Node | string)[]): HTMLElement {
  const node = el("h3", "", ...text);
  node.tabIndex = -1;
  return node;
}

function link(place: string, ...text: (Node | string)[]): HTMLAnchorElement {
  const node = el("a", "", ...text);
  node.href = place;
  return node;
}

async function search(asked: URLSearchParams): Promise<void> {
  words.value = asked.get("q") ?? "";
  state.value = asked.get("state") ?? "";
  within.value = asked.get("within") ?? "604800";
  const list = el("ul", "plain files");
  const end = el("p", "hint");
  let shown = 0;
  let examined = 0;
  const more = async (before: number | null): Promise<Node[]> => {
    const page: FoundPage = await api.find(before === null ? asked : older(asked, before));
    shown += page.transfers.length;
    examined += page.examined;
    list.append(...page.transfers.map(row));
    end.replaceChildren(ending(shown, examined, page.next, more));
    return [heading(shown === 0 ? "No match" : "Found, newest first"), list, end];
  };
  await tell(() => more(null), "search", "");
}

function older(asked: URLSearchParams, before: number): URLSearchParams {
  const next = new URLSearchParams(asked);
  next.set("before", String(before));
  return next;
}

function ending(
  shown: number,
  examined: number,
  next: number | null,
  more: (before: number) => Promise<Node[]>,
): Node {
  const told = `${plural(shown, "transfer")} of ${count(examined)} examined. `;
  if (next === null) return el("span", "", told, "No further transfers.");
  const button = el("button", "quiet", "search older transfers");
  button.type = "button";
  button.addEventListener("click", () => {
    button.disabled = true;
    more(next).catch((why: unknown) => {
      button.disabled = false;
      button.textContent = why instanceof Error ? `${why.message}: try again` : "try again";
    });
  });
  return el("span", "", told, button);
}

function row(one: FoundTransfer): HTMLElement {
  const name = link(`#/transfer/${one.transfer}`, `${one.source} → ${one.destination}`);
  const reason = one.reason === null ? [] : [el("span", "message bad", one.reason)];
  return el(
    "li",
    "",
    el("span", `state ${one.state.toLowerCase()}`, one.state),
    el("span", "grow", name),
    el("span", "hint", `${moment(one.submitted)}, number ${one.transfer}`),
    ...reason,
  );
}

async function job(id: string): Promise<Node[]> {
  words.value = id;
  const all = link(`#/find?${new URLSearchParams({ q: id })}`, "all of its files");
  return [heading(`Job ${id}`), ...explanation(await api.explain(id)), el("p", "", all)];
}

function told(story: Story): Node[] {
  const took = story.started !== null && story.finished !== null ? (story.finished - story.started) / 1000 : null;
  const facts: [string, Node | string][] = [
    ["state", el("b", `state ${story.state.toLowerCase()}`, story.state)],
    ["from", story.source],
    ["to", story.destination],
    ["size", story.size_bytes === null ? "not known" : bytes(story.size_bytes)],
    ["submitted", `${moment(story.submitted)} by ${story.user} for ${story.vo}`],
    ["activity", `${story.activity}, priority ${story.priority}`],
    ["job", el("span", "", link(`#/job/${story.job}`, story.job), ` is ${story.job_state}`)],
  ];
  if (story.starts !== null) {
    const starts = story.starts;
    facts.push(["expected start", "about" in starts ? `about ${moment(starts.about)}` : `not before ${moment(starts.not_before)}`]);
  }
  if (took !== null) {
    const speed =
      story.state === "FINISHED" && story.size_bytes !== null && took > 0 ? `, ${rate(story.size_bytes / took)}` : "";
    facts.push(["last attempt", `${duration(took)}${speed}`]);
  }
  const list = el("dl", "facts", ...facts.flatMap(([name, value]) => [el("dt", "", name), el("dd", "", value)]));
  const steps = story.steps.map((step) => {
    const time = el("time", "hint figure", moment(step.at, true));
    time.dateTime = new Date(step.at).toISOString();
    return el("li", `step ${step.kind}`, time, el("span", "", step.text));
  });
  return [heading(`Transfer ${story.transfer}`), list, el("ol", "steps", ...steps)];
}
