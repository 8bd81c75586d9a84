// Asks the service. Each failure is one of a few kinds, because the page answers each of them differently.

import { token } from "./session.ts";
import type { FoundPage, JobExplanation, Overview, Report, Series, Story } from "./types.ts";

const TIMEOUT_MS = 8000;

/** `unauthorised`: ask for a token. `unreachable`: try again. `refused`: show the text. */
export class NoAnswer extends Error {
  constructor(
    readonly kind: "unauthorised" | "unreachable" | "refused",
    message: string,
    readonly status = 0,
  ) {
    super(message);
  }
}

async function ask<T>(path: string): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  const known = token();
  if (known !== null) headers["Authorization"] = `Bearer ${known}`;
  let response: Response;
  try {
    response = await fetch(path, {
      headers,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (why) {
    const slow = why instanceof DOMException && why.name === "TimeoutError";
    throw new NoAnswer(
      "unreachable",
      slow ? `no answer within ${TIMEOUT_MS / 1000} s` : "the connection failed",
    );
  }
  if (response.status === 401 || response.status === 403) {
    throw new NoAnswer(
      "unauthorised",
      known === null ? "no token was sent" : await said(response),
      response.status,
    );
  }
  if (response.status === 502 || response.status === 503 || response.status === 504) {
    throw new NoAnswer("unreachable", await said(response), response.status);
  }
  if (!response.ok) throw new NoAnswer("refused", await said(response), response.status);
  try {
    return (await response.json()) as T;
  } catch {
    throw new NoAnswer("unreachable", "the answer was cut short");
  }
}

/** The service's own words, whether it wrote text or FTS's `{"message": …}`. */
async function said(response: Response): Promise<string> {
  const text = (await response.text().catch(() => "")).trim();
  try {
    const message: unknown = JSON.parse(text).message;
    if (typeof message === "string" && message !== "") return message;
  } catch {
    // Not JSON: the text itself is the message.
  }
  return text !== "" && text.length < 500 ? text : `${response.status} ${response.statusText}`.trim();
}

export const overview = (): Promise<Overview> => ask("/api/v1/overview");

export const series = (seconds: number, after: number | null): Promise<Series> =>
  ask(`/live/api/series?seconds=${seconds}${after === null ? "" : `&after=${after}`}`);

export const report = (seconds: number): Promise<Report> => ask(`/live/api/report?seconds=${seconds}`);

export const explain = (job: string): Promise<JobExplanation> =>
  ask(`/api/v1/jobs/${encodeURIComponent(job)}/explain`);

export const find = (question: URLSearchParams): Promise<FoundPage> => ask(`/api/v1/transfers?${question}`);

export const story = (transfer: string): Promise<Story> =>
  ask(`/api/v1/transfers/${encodeURIComponent(transfer)}`);
