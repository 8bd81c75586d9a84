// The last minutes, second by second, put together from what the service sends piece by piece.

import type { LinkSeries, Series } from "./types.ts";

export interface Second {
  at: number;
  total: number | null;
  links: Map<string, LinkSecond>;
}

export interface LinkSecond {
  rate: number;
  active: number;
  limit: number;
  queued: number;
}

/** A link's key here and in the links table. */
export const linkKey = (link: { source: string; destination: string }): string =>
  `${link.source} → ${link.destination}`;

/** Seconds that are asked for again, because a late sample may still have changed them. */
const AGAIN_MS = 3000;

export class History {
  private seconds = new Map<number, Second>();

  constructor(readonly length: number) {}

  /** Ask for what lies after this time; `null`: for everything. */
  get after(): number | null {
    const newest = this.newest;
    return newest === null ? null : newest - AGAIN_MS;
  }

  /** The end of the newest second. */
  get newest(): number | null {
    let newest: number | null = null;
    for (const at of this.seconds.keys()) if (newest === null || at > newest) newest = at;
    return newest === null ? null : newest + 1000;
  }

  take(piece: Series): void {
    piece.total.forEach((total, n) => {
      const at = piece.from + n * 1000;
      this.seconds.set(at, { at, total, links: secondOf(piece.links, n) });
    });
    const oldest = (this.newest ?? 0) - this.length * 1000;
    for (const at of this.seconds.keys()) if (at < oldest) this.seconds.delete(at);
  }

  clear(): void {
    this.seconds.clear();
  }

  /** `length` seconds up to `end`, oldest first; seconds that were never told of have no total. */
  until(end: number): Second[] {
    const last = Math.floor(end / 1000) * 1000;
    return Array.from({ length: this.length }, (_, n) => {
      const at = last - (this.length - n) * 1000;
      return this.seconds.get(at) ?? { at, total: null, links: new Map() };
    });
  }
}

function secondOf(links: LinkSeries[], n: number): Map<string, LinkSecond> {
  const second = new Map<string, LinkSecond>();
  for (const link of links) {
    const rate = link.rates[n];
    if (rate === null || rate === undefined) continue;
    second.set(linkKey(link), {
      rate,
      active: link.active[n] ?? 0,
      limit: link.limit[n] ?? 0,
      queued: link.queued[n] ?? 0,
    });
  }
  return second;
}
