// A piece of the rate curve: columns of equal length, as the chart takes them. Short windows are put together from what the
// service sends second by second; long ones come whole.

import type { Series } from "./types.ts";

export interface Curve {
  /** Where each step begins, seconds since 1970. */
  at: number[];
  step: number;
  /** Bytes per second; `null`: not known. */
  total: (number | null)[];
  links: Map<string, LinkCurve>;
}

export interface LinkCurve {
  rates: (number | null)[];
  active: (number | null)[];
  limit: (number | null)[];
  queued: (number | null)[];
}

/** A link's key, here and in each table. */
export const linkKey = (link: { source: string; destination: string }): string =>
  `${link.source} → ${link.destination}`;

/** Seconds that are asked for again, because a late sample may still have changed them. */
const AGAIN_MS = 3000;

export function curveOf(series: Series): Curve {
  const step = series.step_seconds;
  return {
    at: series.total.map((_, n) => series.from / 1000 + n * step),
    step,
    total: series.total,
    links: new Map(series.links.map((link) => [linkKey(link), link])),
  };
}

/** The last seconds, kept from one answer to the next. */
export class Recent {
  private pieces: Series | null = null;

  constructor(readonly seconds: number) {}

  /** Ask for what lies after this time; `null`: for everything. */
  get after(): number | null {
    return this.pieces === null ? null : this.pieces.to - AGAIN_MS;
  }

  take(piece: Series): Curve {
    this.pieces = this.pieces === null || piece.from > this.pieces.to ? piece : joined(this.pieces, piece);
    this.pieces = shortened(this.pieces, this.seconds);
    return curveOf(this.pieces);
  }
}

function joined(old: Series, piece: Series): Series {
  const kept = Math.max(0, Math.min(old.total.length, Math.round((piece.from - old.from) / 1000)));
  const length = kept + piece.total.length;
  const join = <T>(a: (T | null)[] | undefined, b: (T | null)[] | undefined): (T | null)[] => [
    ...(a?.slice(0, kept) ?? new Array<T | null>(kept).fill(null)),
    ...(b ?? new Array<T | null>(length - kept).fill(null)),
  ];
  const before = new Map(old.links.map((link) => [linkKey(link), link]));
  const after = new Map(piece.links.map((link) => [linkKey(link), link]));
  const links = [...new Set([...before.keys(), ...after.keys()])].map((key) => {
    const [a, b] = [before.get(key), after.get(key)];
    const { source, destination } = (a ?? b)!;
    return {
      source,
      destination,
      rates: join(a?.rates, b?.rates),
      active: join(a?.active, b?.active),
      limit: join(a?.limit, b?.limit),
      queued: join(a?.queued, b?.queued),
    };
  });
  return { ...piece, from: old.from, total: join(old.total, piece.total), links };
}

function shortened(series: Series, seconds: number): Series {
  const surplus = series.total.length - seconds;
  if (surplus <= 0) return series;
  const cut = <T>(values: T[]): T[] => values.slice(surplus);
  const links = series.links.map((link) => ({
    ...link,
    rates: cut(link.rates),
    active: cut(link.active),
    limit: cut(link.limit),
    queued: cut(link.queued),
  }));
  return {
    ...series,
    from: series.from + surplus * 1000,
    total: cut(series.total),
    links: links.filter((link) => link.rates.some((rate) => rate !== null)),
  };
}

/** Bytes that each link moved in the curve. */
export function movedByLink(curve: Curve): Map<string, number> {
  const sum = (values: (number | null)[]): number => values.reduce<number>((all, value) => all + (value ?? 0), 0);
  return new Map([...curve.links].map(([key, link]) => [key, sum(link.rates) * curve.step]));
}
