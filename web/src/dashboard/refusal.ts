// What a page says when there is no answer for what it is about.

import { NoAnswer } from "../api.ts";
import { el } from "../dom.ts";

/** Raises again what is not the matter of one page: a token that has ended, a service that is away. */
export function told(what: string, name: string, why: unknown): HTMLElement {
  if (why instanceof NoAnswer && (why.kind === "unauthorised" || why.kind === "unreachable")) throw why;
  if (why instanceof NoAnswer && why.status === 404)
    return el("p", "bad", `There is no ${what} ${name}: check the spelling, or ask the service that it was submitted to.`);
  if (why instanceof NoAnswer && why.kind === "forbidden")
    return el("p", "none", `Only for administrators: ${why.message}`);
  return el("p", "bad", why instanceof Error ? why.message : "no answer");
}
