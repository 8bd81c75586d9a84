// Asking the door: with the token of this tab, else with the authorisation in the page's own link, else with what
// the browser shows by itself (a client certificate, or nothing).

import { token } from "../session.ts";

/** What the door said when it did not do what it was asked. */
export class Refusal extends Error {
  readonly status: number;
  constructor(status: number, text: string) {
    super(text.trim() === "" ? `the door answered ${status}` : text.trim());
    this.status = status;
  }
}

/** The authorisation that the page's link carries: `?authz=…`, or the secret of a share in `/s/…`. */
export function linkAuthorisation(): string | null {
  const shared = /^\/s\/(S[A-Za-z0-9_-]{22})(?:\/|$)/.exec(location.pathname);
  return shared?.[1] ?? new URLSearchParams(location.search).get("authz");
}

/** `href` as this page must ask for it. */
export function withAuthorisation(href: string): string {
  const authorisation = linkAuthorisation();
  if (authorisation === null) return href;
  const url = new URL(href, location.origin);
  url.searchParams.set("authz", authorisation);
  return url.pathname + url.search;
}

/** The headers that say who asks. A link's own authorisation outranks the token. */
export function credentials(): Record<string, string> {
  const bearer = token();
  return bearer === null || linkAuthorisation() !== null ? {} : { Authorization: `Bearer ${bearer}` };
}

export interface Question {
  headers?: Record<string, string>;
  body?: string;
  signal?: AbortSignal;
}

/** One request; statuses from 400 on are thrown as a [`Refusal`]. */
export async function ask(method: string, href: string, question: Question = {}): Promise<Response> {
  const response = await fetch(withAuthorisation(href), {
    method,
    headers: { Accept: "*/*", ...credentials(), ...question.headers },
    ...(question.body === undefined ? {} : { body: question.body }),
    ...(question.signal === undefined ? {} : { signal: question.signal }),
    cache: "no-store",
  });
  if (response.status >= 400)
    throw new Refusal(response.status, method === "HEAD" ? "" : await response.text());
  return response;
}

/** Whether something stands at a path. */
export async function exists(href: string): Promise<boolean> {
  try {
    await ask("HEAD", href);
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) return false;
    throw error;
  }
}

export interface Macaroon {
  text: string;
  /** Seconds that it is worth something. */
  seconds: number;
}

/** A credential for this path and below, for these activities, for so many minutes at most. */
export async function macaroon(href: string, activities: string, minutes: number): Promise<Macaroon> {
  const response = await ask("POST", href, {
    headers: { "Content-Type": "application/macaroon-request" },
    body: JSON.stringify({ caveats: [`activity:${activities}`], validity: `PT${minutes}M` }),
  });
  const made = (await response.json()) as { macaroon: string; expires_in: number };
  return { text: made.macaroon, seconds: made.expires_in };
}

/** The path of a name below a directory, encoded. */
export function below(directory: string, name: string): string {
  return `${directory.replace(/\/+$/, "")}/${encodeURIComponent(name)}`;
}

/** The last name of an encoded path. */
export function lastName(href: string): string {
  return decodeURIComponent(href.replace(/\/+$/, "").split("/").pop() ?? "");
}

/** Why a name cannot be one; `null` when it can. */
export function nameProblem(name: string): string | null {
  if (name === "" || name === "." || name === "..") return "Give it a name.";
  if (name.includes("/")) return "A name cannot contain a slash.";
  if (/[\u0000-\u001f\u007f-\u009f]/.test(name)) return "A name cannot contain control characters.";
  if (new TextEncoder().encode(name).length > 255) return "A name has at most 255 bytes.";
  return null;
}
