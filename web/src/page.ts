// What every page of the dashboard is: a node, and how it is brought up to date. Only the page that is shown is asked to,
// and only while the browser shows it.

import { el } from "./dom.ts";
import type { Route } from "./route.ts";

export interface Page {
  /** Stands in the title of the window. */
  title: string;
  node: HTMLElement;
  /** Milliseconds between two updates; `null`: once is enough. */
  every: number | null;
  update(): Promise<void>;
  /** Whether the same page can show another address of itself; else a new one is made. */
  follow?(route: Route): boolean;
  leave?(): void;
}

/** A card with a heading. */
export function card(title: string, ...children: (Node | string)[]): HTMLElement {
  const heading = el("h2", "", title);
  const node = el("section", "card", heading, ...children);
  heading.id = `title-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  node.setAttribute("aria-labelledby", heading.id);
  return node;
}

export function link(place: string, ...text: (Node | string)[]): HTMLAnchorElement {
  const node = el("a", "", ...text);
  node.href = place;
  return node;
}

export function button(text: string, act: () => void): HTMLButtonElement {
  const node = el("button", "quiet", text);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/** The heading of a page that is about one thing; it takes the focus, so that a screen reader begins there. */
export function pageHeading(...text: (Node | string)[]): HTMLElement {
  const node = el("h2", "page-title", ...text);
  node.tabIndex = -1;
  return node;
}

/** Whether the reader is at something in it: then it is not made anew under their finger. A heading that was only announced is nothing. */
export function isInUse(node: Node): boolean {
  const active = document.activeElement;
  return active !== null && node.contains(active) && !active.classList.contains("page-title");
}

/** `name: value` in two columns. */
export function facts(rows: [string, Node | string][]): HTMLElement {
  return el("dl", "facts", ...rows.flatMap(([name, value]) => [el("dt", "", name), el("dd", "", value)]));
}

/** Where the same numbers are for programs. */
export function twin(path: string): HTMLElement {
  const code = el("code", "", `GET ${path}`);
  return el("p", "hint twin", "The same for programs: ", code);
}

/** A table that can be scrolled sideways by keyboard where it does not fit. */
export function scrolled(label: string, table: HTMLElement): HTMLElement {
  const node = el("div", "scrolled", table);
  node.tabIndex = 0;
  node.setAttribute("role", "region");
  node.setAttribute("aria-label", label);
  return node;
}

export function labelled<T extends HTMLInputElement | HTMLSelectElement>(text: string, field: T): HTMLLabelElement {
  return el("label", "field", el("span", "", text), field);
}

export function select(options: [value: string, text: string][], chosen: string): HTMLSelectElement {
  const node = el("select");
  for (const [value, text] of options) {
    const option = el("option", "", text);
    option.value = value;
    option.selected = value === chosen;
    node.append(option);
  }
  return node;
}
