// What the service answers. Times are milliseconds since 1970, `null` is "not known".

/** `GET /api/v1/overview` */
export interface Overview {
  at: number;
  site: string;
  /** From when on what ended and what moved is counted. */
  counted_since: number;
  totals: {
    submitted: number;
    active: number;
    finished: number;
    /** Files that were given up. */
    failed: number;
    /** Attempts that failed, also of files that were tried again. */
    failed_attempts: number;
    canceled: number;
    moved_bytes: number;
    rate_bytes_per_second: number;
  };
  agents: { active: number; limit: number };
  links: LinkNow[];
  storages: StorageNow[];
  waiting: { reason: string; text: string; transfers: number }[];
  active_transfers: ActiveTransfer[];
}

export interface LinkNow {
  source: string;
  destination: string;
  active: number;
  limit: number;
  /** What operators allow. */
  limit_max: number;
  /** Why the limit is what it is; null when nothing was decided. */
  limit_because: string | null;
  queued: number;
  rate_bytes_per_second: number;
  finished: number;
  failed: number;
  failed_attempts: number;
  waiting_because: string | null;
  last_failure: string | null;
}

export interface StorageNow {
  storage: string;
  outbound_active: number;
  outbound_limit: number;
  inbound_active: number;
  inbound_limit: number;
}

export interface ActiveTransfer {
  transfer: number;
  job: string;
  source: string;
  destination: string;
  moved_bytes: number;
  size_bytes: number | null;
  seconds: number;
}

/** `GET /api/v1/jobs/{id}/explain` */
export interface JobExplanation {
  job_id: string;
  job_state: string;
  lines: string[];
  files: { file_id: number; state: string; text: string }[];
}

/** One of `GET /api/v1/transfers` */
export interface FoundTransfer {
  transfer: number;
  job: string;
  vo: string;
  user: string;
  state: string;
  source: string;
  destination: string;
  activity: string;
  submitted: number;
  started: number | null;
  finished: number | null;
  size_bytes: number | null;
  reason: string | null;
}

/** `GET /api/v1/transfers` */
export interface FoundPage {
  transfers: FoundTransfer[];
  next: number | null;
  examined: number;
}

/** `GET /api/v1/transfers/{number}` */
export interface Story extends FoundTransfer {
  priority: number;
  job_state: string;
  /** When one that waits will probably start, in milliseconds since 1970. */
  starts: { about: number } | { not_before: number } | null;
  steps: { at: number; kind: string; text: string }[];
  /** Where the time of the last attempt went, in microseconds; of files that arrived. */
  stages: { stage: string; microseconds: number }[] | null;
}

/** `GET /live/api/series` */
export interface Series {
  unit: string;
  population: string;
  step_seconds: number;
  from: number;
  to: number;
  total: (number | null)[];
  links: LinkSeries[];
}

export interface LinkSeries {
  source: string;
  destination: string;
  rates: (number | null)[];
  active: (number | null)[];
  limit: (number | null)[];
  queued: (number | null)[];
}

/** One of `GET /live/api/marks` */
export interface Mark {
  at: number;
  kind: "start" | "ban" | "drain" | "limit" | "halt";
  text: string;
  by?: string;
}

/** `GET /live/api/marks` */
export interface Marks {
  from: number;
  to: number;
  marks: Mark[];
}

/** One of `GET /api/v1/explain` */
export interface RateChangeRow {
  id: string;
  population: Record<string, unknown>;
  from: number;
  to: number;
  is_over: boolean;
  usual_bytes_per_second: number;
  low_bytes_per_second: number;
  causes: { cause: string; code: string; text: string; share_percent: number }[];
  unexplained_percent: number;
}

/** `GET /api/v1/explain` */
export interface RateChanges {
  from: number;
  to: number;
  complete_since?: number;
  drops: RateChangeRow[];
  rises: RateChangeRow[];
  lulls: RateChangeRow[];
}

/** `GET /api/v1/explain/{id}`, as far as the page shows it. */
export interface RateChangeDetail extends RateChangeRow {
  details: { evidence: { text: string }[]; bytes_per_second_without: number; fix?: { text: string; gain_percent?: number } }[];
  missing: { text: string }[];
  falls: { text: string; share_percent: number }[];
  carriers: { dimension: string; elements: { name: string; share_percent: number }[] }[];
}

/** One of `GET /api/v1/incidents` */
export interface IncidentRow {
  id: string;
  class: string;
  text: string;
  first_seen: number;
  last_seen: number;
  is_open: boolean;
  failed_attempts: number;
  drops: number;
  links: number;
}

/** `GET /api/v1/incidents` */
export interface IncidentList {
  from: number;
  to: number;
  complete_since?: number;
  incidents_left_out?: number;
  incidents: IncidentRow[];
  months: {
    month: string;
    incidents: number;
    classes: { class: string; incidents: number; share_percent: number; failed_attempts: number }[];
  }[];
}

/** `GET /api/v1/incidents/{id}` */
export interface IncidentDetail extends IncidentRow {
  link_names: { source: string; destination: string }[];
  evidence: { text: string }[];
  request: string;
  verification: string;
  ticket: string;
}

/** `GET /api/v1/health` */
export interface Health {
  status: string;
  ready: boolean;
  live: boolean;
  findings: { text?: string; [name: string]: unknown }[];
}

/** A job of `GET /fts3/ftsmon/jobs`, as far as the pages show it. */
export interface JobRow {
  job_id: string;
  job_state: string;
  vo_name: string;
  user_dn: string;
  submit_time: string;
  job_finished: string | null;
  priority: number;
  source_se: string | null;
  dest_se: string | null;
  reason: string | null;
}

/** `GET /fts3/ftsmon/jobs` */
export interface JobPage {
  count: number;
  items: JobRow[];
  page: number;
  pageCount: number;
}

/** `GET /fts3/ftsmon/jobs/{id}` */
export interface JobCounts {
  job: JobRow;
  states: Record<string, number>;
}

/** What is counted by VO or by activity: `GET /fts3/ftsmon/stats/vo` and `/overview/activities`. */
export interface GroupCounts {
  submitted: number;
  active: number;
  finished: number;
  failed: number;
  canceled: number;
  staging: number;
}

/** One of `GET /config/audit` */
export interface AuditRow {
  datetime: string;
  dn: string;
  action: string;
  config: string;
  old: Record<string, unknown> | null;
  new: Record<string, unknown> | null;
}

/** `GET /live/api/report`, as far as the page shows it. */
export interface Report {
  /** Whether every event of the window was looked at. */
  complete: boolean;
  /** From when on they were, when not all were. */
  complete_since?: number;
  population: string;
  seconds: number;
  transfers: { total: number; finished: number; failed: number; canceled: number; open: number };
  bytes: number;
  bandwidth: { megabits_per_second: number } | null;
  pace: { queue_seconds_mean: number | null; attempt_seconds_mean: number | null };
  quality: { errors: number; transfers: number; error_percent: number | null; incidents: FailureKind[] };
  stages: { stage: string; seconds: number | null; percent: number | null }[];
}

export interface FailureKind {
  fingerprint: string;
  side: string;
  phase: string;
  errors: number;
  transfers: number;
  first: number;
  last: number;
  example: string;
}
