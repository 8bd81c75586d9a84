// The form that finds transfers and jobs, and what it has found. The question stands in the address (`#/find?q=…`).

import * as api from "../api.ts";
import { el } from "../dom.ts";
import { count, moment, plural } from "../format.ts";
import { button, card, labelled, link, type Page, pageHeading, select, twin } from "../page.ts";
import { address, type Route, route } from "../route.ts";
import type { FoundPage, FoundTransfer } from "../types.ts";
import { told } from "./refusal.ts";

const JOB = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;
const STATES: [value: string, text: string][] = [
  ["", "any state"],
  ["SUBMITTED", "waiting"],
  ["ACTIVE", "moving"],
  ["FINISHED", "finished"],
  ["FAILED", "failed"],
  ["CANCELED", "canceled"],
];
const WITHIN: [value: string, text: string][] = [
  ["86400", "within a day"],
  ["604800", "within a week"],
  ["2678400", "within a month"],
  ["0", "at any time"],
];

/** The form, on each page that has it. */
export function findForm(asked: URLSearchParams): HTMLElement {
  const words = el("input");
  words.id = "find-words";
  words.type = "search";
  words.spellcheck = false;
  words.placeholder = "parts of an address, a job id, or a number";
  words.value = asked.get("q") ?? "";
  const state = select(STATES, asked.get("state") ?? "");
  state.id = "find-state";
  const within = select(WITHIN, asked.get("within") ?? "604800");
  const submit = el("button", "", "Find");
  submit.type = "submit";
  const form = el("form", "controls", labelled("Transfer or job", words), labelled("State", state), labelled("Submitted", within), submit);
  form.id = "find-form";
  form.setAttribute("role", "search");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = words.value.trim();
    const query: Record<string, string> = { within: within.value };
    if (text !== "") query["q"] = text;
    if (state.value !== "") query["state"] = state.value;
    location.hash = JOB.test(text) ? address("job", text) : address("find", "", query);
  });
  return form;
}

export class FindPage implements Page {
  title = "Find";
  every = null;
  readonly node = el("div", "page");
  private readonly answer = el("div", "find-answer");
  private asked = route().query;

  constructor() {
    this.answer.id = "find-answer";
    this.answer.setAttribute("aria-live", "polite");
    this.node.append(card("Find a transfer or a job", findForm(this.asked), this.answer, twin("/api/v1/transfers")));
  }

  follow(_: Route): boolean {
    return false;
  }

  async update(): Promise<void> {
    this.answer.replaceChildren(el("p", "hint", "searching …"));
    const list = el("ul", "plain files");
    const end = el("p", "hint");
    let shown = 0;
    let examined = 0;
    const more = async (before: number | null): Promise<void> => {
      const page: FoundPage = await api.find(before === null ? this.asked : older(this.asked, before));
      shown += page.transfers.length;
      examined += page.examined;
      list.append(...page.transfers.map(transferRow));
      end.replaceChildren(ending(shown, examined, page.next, more));
    };
    try {
      await more(null);
      this.answer.replaceChildren(pageHeading(shown === 0 ? "No match" : "Found, newest first"), list, end);
    } catch (why) {
      this.answer.replaceChildren(told("transfer", this.asked.get("q") ?? "", why));
    }
  }
}

function older(asked: URLSearchParams, before: number): URLSearchParams {
  const next = new URLSearchParams(asked);
  next.set("before", String(before));
  return next;
}

function ending(shown: number, examined: number, next: number | null, more: (before: number) => Promise<void>): Node {
  const told = `${plural(shown, "transfer")} of ${count(examined)} examined. `;
  if (next === null) return el("span", "", told, "No further transfers.");
  const node: HTMLButtonElement = button("search older transfers", () => {
    node.disabled = true;
    more(next).catch((why: unknown) => {
      node.disabled = false;
      node.textContent = why instanceof Error ? `${why.message}: try again` : "try again";
    });
  });
  return el("span", "", told, node);
}

export function transferRow(one: FoundTransfer): HTMLElement {
  const name = link(address("transfer", String(one.transfer)), `${one.source} → ${one.destination}`);
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
