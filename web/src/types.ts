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
  quality: { errors: number; transfers: number; error_percent: number | null; incidents: Incident[] };
  stages: { stage: string; seconds: number | null; percent: number | null }[];
  drops: RateDrop[];
}

/** A stretch well below the usual rate, with the factors that fell and their parts of all that fell. */
export interface RateDrop {
  from: number;
  to: number;
  usual: RateFactors;
  seen: RateFactors;
  causes: { cause: "lower_limit" | "not_fed" | "nothing_waited" | "slower_files"; share_percent: number }[];
  errors: number;
}

export interface RateFactors {
  megabits_per_second: number;
  limit: number;
  in_use: number;
  megabits_per_second_per_file: number;
}

export interface Incident {
  fingerprint: string;
  side: string;
  phase: string;
  errors: number;
  transfers: number;
  first: number;
  last: number;
  example: string;
}
