// Asks the service. Each failure is one of a few kinds, because the page answers each of them differently.

import { token } from "./session.ts";
import type {
  AuditRow,
  FoundPage,
  GroupCounts,
  Health,
  IncidentDetail,
  IncidentList,
  JobCounts,
  JobExplanation,
  JobPage,
  Marks,
  Overview,
  RateChangeDetail,
  RateChanges,
  Report,
  Series,
  Story,
} from "./types.ts";

const TIMEOUT_MS = 8000;

/** `unauthorised`: ask for a token. `forbidden`: not for this reader. `unreachable`: try again. `refused`: show the text. */
export class NoAnswer extends Error {
  constructor(
    readonly kind: "unauthorised" | "forbidden" | "unreachable" | "refused",
    message: string,
    readonly status = 0,
  ) {
    super(message);
  }
}

/** Windows are explained from the record, which may take seconds. */
const EXPLAIN_TIMEOUT_MS = 60_000;

async function ask<T>(path: string, timeout = TIMEOUT_MS): Promise<T> {
  const response = await send("GET", path, timeout);
  try {
    return (await response.json()) as T;
  } catch {
    throw new NoAnswer("unreachable", "the answer was cut short");
  }
}

/** Changes something, with the rights of whoever has signed in. */
export async function act(method: "POST" | "DELETE", path: string, body?: unknown): Promise<void> {
  await send(method, path, TIMEOUT_MS, body);
}

async function send(method: string, path: string, timeout: number, body?: unknown): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const known = token();
  if (known !== null) headers["Authorization"] = `Bearer ${known}`;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(timeout),
    });
  } catch (why) {
    const slow = why instanceof DOMException && why.name === "TimeoutError";
    throw new NoAnswer(
      "unreachable",
      slow ? `no answer within ${timeout / 1000} s` : "the connection failed",
    );
  }
  if (response.status === 401) {
    throw new NoAnswer(
      "unauthorised",
      known === null ? "no token was sent" : await said(response),
      response.status,
    );
  }
  if (response.status === 403) throw new NoAnswer("forbidden", await said(response), response.status);
  if (response.status === 502 || response.status === 503 || response.status === 504) {
    throw new NoAnswer("unreachable", await said(response), response.status);
  }
  if (!response.ok) throw new NoAnswer("refused", await said(response), response.status);
  return response;
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

/** A window that ends now, or at a time. */
export interface WindowAsked {
  seconds: number;
  until: number | null;
}

const windowQuery = ({ seconds, until }: WindowAsked): string =>
  `seconds=${seconds}${until === null ? "" : `&until=${until}`}`;

export const series = (window: WindowAsked, after: number | null): Promise<Series> =>
  ask(`/live/api/series?${windowQuery(window)}${after === null ? "" : `&after=${after}`}`, EXPLAIN_TIMEOUT_MS);

export const marks = (window: WindowAsked): Promise<Marks> =>
  ask(`/live/api/marks?${windowQuery(window)}`, EXPLAIN_TIMEOUT_MS);

export const report = (seconds: number): Promise<Report> => ask(`/live/api/report?seconds=${seconds}`);

export const rateChanges = (window: WindowAsked): Promise<RateChanges> =>
  ask(`/api/v1/explain?${windowQuery(window)}`, EXPLAIN_TIMEOUT_MS);

export const rateChange = (id: string): Promise<RateChangeDetail> =>
  ask(`/api/v1/explain/${encodeURIComponent(id)}`, EXPLAIN_TIMEOUT_MS);

export const incidents = (window: WindowAsked): Promise<IncidentList> =>
  ask(`/api/v1/incidents?${windowQuery(window)}`, EXPLAIN_TIMEOUT_MS);

export const incident = (id: string): Promise<IncidentDetail> =>
  ask(`/api/v1/incidents/${encodeURIComponent(id)}`, EXPLAIN_TIMEOUT_MS);

export const explain = (job: string): Promise<JobExplanation> =>
  ask(`/api/v1/jobs/${encodeURIComponent(job)}/explain`);

export const find = (question: URLSearchParams): Promise<FoundPage> => ask(`/api/v1/transfers?${question}`);

export const story = (transfer: string): Promise<Story> =>
  ask(`/api/v1/transfers/${encodeURIComponent(transfer)}`);

export const jobs = (question: URLSearchParams): Promise<JobPage> => ask(`/fts3/ftsmon/jobs?${question}`);

export const jobCounts = (id: string): Promise<JobCounts> => ask(`/fts3/ftsmon/jobs/${encodeURIComponent(id)}`);

export const byVo = (): Promise<{ vos: Record<string, GroupCounts> }> => ask("/fts3/ftsmon/stats/vo");

export const byActivity = (): Promise<{ activities: Record<string, GroupCounts> }> =>
  ask("/fts3/ftsmon/overview/activities");

export const audit = (limit: number): Promise<AuditRow[]> => ask(`/config/audit?limit=${limit}`);

export const configuration = (path: string): Promise<unknown> => ask(path);

export const health = (): Promise<Health> => ask("/api/v1/health");

export const bans = (): Promise<unknown[]> => ask("/ban/se");

export const hosts = (): Promise<{ hostname: string; drain: boolean }[]> => ask("/config");

export const whoami = (): Promise<{ level: Record<string, string>; is_root: boolean; user_dn: string }> =>
  ask("/whoami");

/** The text of `/metrics`. */
export async function metrics(): Promise<string> {
  return (await send("GET", "/metrics", TIMEOUT_MS)).text();
}
