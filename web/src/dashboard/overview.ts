// The first page: how things stand, the rate over any time up to forty days with what happened to it, why files wait and
// what failed.

import * as api from "../api.ts";
import type { WindowAsked } from "../api.ts";
import { bandRates, Chart, legend, type Band } from "../chart.ts";
import { colourOf, distinct, OTHERS } from "../colours.ts";
import { type Curve, curveOf, movedByLink, Recent } from "../curve.ts";
import { el, setText } from "../dom.ts";
import { bits, bytes, clock, count, duration, host, moment, plural, rate } from "../format.ts";
import { button, card, type Page, twin } from "../page.ts";
import { causeLines, populationName, showActive, showDrops, showFailures, showStages, showTotals, showWaiting, summary } from "../panels.ts";
import { replaceQuery, type Route, route } from "../route.ts";
import type { Mark, Overview, RateChangeRow } from "../types.ts";
import { HealthStrip } from "./health.ts";

const RANGES: [seconds: number, text: string][] = [
  [300, "5 min"],
  [900, "15 min"],
  [3600, "1 h"],
  [6 * 3600, "6 h"],
  [86_400, "24 h"],
  [7 * 86_400, "7 d"],
  [30 * 86_400, "30 d"],
  [40 * 86_400, "40 d"],
];
const SECONDS_MAX = 40 * 86_400;
/** Up to here the service tells second by second. */
const SECONDS_OF_SAMPLES = 900;
/** Links with a colour of their own in one chart. */
const BANDS_MAX = 6;
const REPORT_SECONDS = 900;
const REPORT_EVERY_MS = 5000;
const CURVE_EVERY_MS = 15_000;
const EXPLAIN_EVERY_MS = 30_000;
/** Drops are told by what was usual: the explainer sees at least so much before. */
const EXPLAINED_SECONDS_MIN = 3600;

export class OverviewPage implements Page {
  title = "Overview";
  every = 1000;
  readonly node = el("div", "page");
  private readonly rateNow = el("span", "", "–");
  private readonly rateBits = el("p", "hint");
  private readonly totals = el("dl", "totals");
  private readonly since = el("p", "hint");
  private readonly summary = el("p", "summary");
  private readonly health = new HealthStrip();
  private readonly chartTitle = el("h2", "", "Rate");
  private readonly chartBox = el("div", "chart");
  private readonly legend = el("ul", "legend");
  private readonly note = el("p", "hint");
  private readonly chosen = el("div", "chosen");
  private readonly marksList = el("ul", "plain marks");
  private readonly marksBox: HTMLDetailsElement;
  private readonly chart = new Chart(this.chartBox, (from, to) => this.choose(from, to));
  private readonly waiting = el("ul", "plain");
  private readonly active = el("ul", "plain");
  private readonly quality = el("p", "hint");
  private readonly failures = el("ul", "plain");
  private readonly drops = el("ul", "plain");
  private readonly stages = el("ul", "plain");
  private readonly stagesNote = el("p", "hint");
  private readonly pause = button("pause", () => this.togglePause());
  private readonly allLinks = button("show all links", () => this.only(null));
  private readonly rangeButtons: HTMLButtonElement[];
  private window: WindowAsked = { seconds: 300, until: null };
  private link: string | null = null;
  private isPaused = false;
  private recent = new Recent(300);
  private curve: Curve | null = null;
  private marks: Mark[] = [];
  private rateDrops: RateChangeRow[] = [];
  private curveAt = 0;
  private explainedAt = 0;
  private reportAt = 0;
  /** Counts windows: an answer that comes after another window was chosen is dropped. */
  private generation = 0;

  constructor() {
    this.rateNow.id = "rate-now";
    this.totals.id = "totals";
    this.summary.id = "summary";
    this.chartBox.id = "chart";
    this.waiting.id = "waiting";
    this.failures.id = "failures";
    this.drops.id = "drops";
    this.rangeButtons = RANGES.map(([seconds, text]) => {
      const node = button(text, () => this.show({ seconds, until: null }));
      node.dataset["seconds"] = String(seconds);
      return node;
    });
    const ranges = el("div", "ranges", ...this.rangeButtons);
    ranges.setAttribute("role", "group");
    ranges.setAttribute("aria-label", "Time range");
    const move = el(
      "div",
      "ranges",
      button("◀ earlier", () => this.step(-1)),
      button("later ▶", () => this.step(1)),
      button("zoom in", () => this.zoom(0.5)),
      button("zoom out", () => this.zoom(2)),
      this.pause,
    );
    move.setAttribute("role", "group");
    move.setAttribute("aria-label", "Move and zoom");
    this.chosen.setAttribute("aria-live", "polite");
    this.marksBox = el("details", "marks-box", el("summary", "", "Changes in this time"), this.marksList);
    const chartCard = el(
      "section",
      "card",
      el("div", "title-row", this.chartTitle, this.allLinks),
      el("div", "controls", ranges, move),
      this.chartBox,
      this.legend,
      this.chosen,
      this.marksBox,
      this.note,
      twin("/live/api/series, /live/api/marks, /api/v1/explain"),
    );
    this.marksBox.hidden = true;
    this.drops.append(el("li", "none", "reading the record …"));
    this.chartTitle.id = "chart-title";
    chartCard.setAttribute("aria-labelledby", "chart-title");
    const now = el("h2", "", "Rate now");
    const headline = el(
      "section",
      "card headline",
      el("div", "now", now, el("p", "big", this.rateNow), this.rateBits),
      this.totals,
      this.since,
      this.summary,
    );
    headline.setAttribute("aria-label", "Now");
    this.node.append(
      this.health.node,
      headline,
      chartCard,
      el("div", "columns", card("Why files wait", this.waiting), card("Recent failures", this.quality, this.failures)),
      el(
        "div",
        "columns",
        card("Moving now", this.active),
        el("div", "stack", card("Rate drops", this.drops), card("Where the time went", this.stagesNote, this.stages)),
      ),
    );
    this.take(route());
  }

  follow(to: Route): boolean {
    this.take(to);
    this.begin();
    void this.update();
    return true;
  }

  leave(): void {
    this.chart.close();
  }

  async update(): Promise<void> {
    const mine = this.generation;
    const isLive = this.window.until === null && !this.isPaused;
    const [seen] = await Promise.all([api.overview(), this.updateCurve(isLive, mine), this.health.update()]);
    this.showNow(seen);
    if (Date.now() - this.reportAt >= REPORT_EVERY_MS) {
      const report = await api.report(REPORT_SECONDS);
      this.reportAt = Date.now();
      showFailures(this.quality, this.failures, report);
      showStages(this.stagesNote, this.stages, report);
    }
    // Not waited for: reading a month takes longer than a second.
    if (this.explainedAt === 0 || (isLive && Date.now() - this.explainedAt >= EXPLAIN_EVERY_MS)) void this.explain(mine);
  }

  private async updateCurve(isLive: boolean, mine: number): Promise<void> {
    const window = this.window;
    if (window.until === null && window.seconds <= SECONDS_OF_SAMPLES) {
      if (!isLive && this.curve !== null) return;
      const piece = await api.series(window, this.recent.after);
      if (mine !== this.generation) return;
      this.curve = this.recent.take(piece);
      this.draw();
      return;
    }
    const isDue = this.curve === null || (isLive && Date.now() - this.curveAt >= CURVE_EVERY_MS);
    if (!isDue) return;
    this.curveAt = Date.now();
    const series = await api.series(window, null);
    if (mine !== this.generation) return;
    this.curve = curveOf(series);
    this.draw();
  }

  private async explain(mine: number): Promise<void> {
    this.explainedAt = Date.now();
    const window = this.window;
    const explained = { ...window, seconds: Math.max(window.seconds, EXPLAINED_SECONDS_MIN) };
    // Each is shown when it comes; what cannot be read now is asked for again later.
    const marks = api.marks(window).then((told) => {
      if (mine !== this.generation) return;
      this.marks = told.marks;
      this.showMarks();
      this.draw();
    });
    const changes = api.rateChanges(explained).then((told) => {
      if (mine !== this.generation) return;
      const begin = (window.until ?? Date.now()) - window.seconds * 1000;
      this.rateDrops = told.drops.filter((drop) => drop.to > begin);
      showDrops(this.drops, this.rateDrops);
      this.draw();
    });
    await Promise.allSettled([marks, changes]);
  }

  private showNow(seen: Overview): void {
    const { rate_bytes_per_second } = seen.totals;
    setText(this.rateNow, rate(rate_bytes_per_second));
    setText(this.rateBits, `= ${bits(rate_bytes_per_second)} of file data`);
    showTotals(this.totals, seen);
    setText(
      this.since,
      `Counts of finished, failed, canceled and moved start at ${moment(seen.counted_since)}, when the service started.`,
    );
    setText(this.summary, summary(seen));
    showWaiting(this.waiting, seen);
    showActive(this.active, seen);
    this.title = rate(rate_bytes_per_second);
  }

  private bands(curve: Curve): Band[] {
    const named = (key: string): Band => ({ key, label: short(key), colour: colourOf(key) });
    if (this.link !== null) return [named(this.link)];
    const moved = [...movedByLink(curve)].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]);
    const ranked = moved.map(([key]) => key);
    const shown = distinct(ranked, BANDS_MAX);
    const bands = shown.map(named);
    // Sorted by name, so that a band keeps its place when ranks change.
    bands.sort((a, b) => a.label.localeCompare(b.label));
    const others = { key: null, label: "other links", colour: OTHERS };
    if (ranked.length === 0) return [{ ...others, label: "all links" }];
    const rest = bandRates(curve, [...bands, others])[bands.length] ?? [];
    return rest.some((value) => (value ?? 0) > 0) ? [...bands, others] : bands;
  }

  private draw(): void {
    const curve = this.curve;
    if (curve === null) return;
    const bands = this.bands(curve);
    this.chart.show({ curve, bands, drops: this.rateDrops, marks: this.marks });
    this.legend.replaceChildren(...legend(bands));
    const { seconds, until } = this.window;
    const span = until === null ? `the last ${rangeText(seconds)}` : `${moment(until - seconds * 1000)} to ${moment(until)}`;
    setText(this.chartTitle, `Rate over ${span}${this.link === null ? "" : `: ${short(this.link)}`}`);
    this.allLinks.hidden = this.link === null;
    const sum = [...movedByLink(curve)].reduce((all, [key, moved]) => (this.link === null || key === this.link ? all + moved : all), 0);
    setText(
      this.note,
      `${bytes(sum)} moved in this time, including attempts that failed later; one step is ${duration(curve.step)}. ` +
        "Gaps: the service was not running, or nothing was queued. Shaded: drops. " +
        "Letters: S start, B ban, D drain, L limit, H link halt. Drag over a part to look closer. Times are local.",
    );
  }

  private showMarks(): void {
    this.marksBox.hidden = this.marks.length === 0;
    const summaryNode = this.marksBox.firstElementChild;
    if (summaryNode !== null) setText(summaryNode, `${plural(this.marks.length, "change")} in this time`);
    const items = [...this.marks].reverse().map((mark) => {
      const by = mark.by === undefined ? "" : ` (by ${mark.by})`;
      return el("li", `mark ${mark.kind}`, el("span", "hint figure", moment(mark.at)), el("span", "", `${mark.text}${by}`));
    });
    this.marksList.replaceChildren(...items);
  }

  /** A part of the curve was dragged over. */
  private choose(from: number, to: number): void {
    const close = (): void => {
      this.chosen.replaceChildren();
      this.chart.clearSelection();
    };
    const answer = el("div", "difference");
    this.chosen.replaceChildren(
      el(
        "div",
        "ranges",
        el("b", "", `${moment(from * 1000)} to ${clock(to * 1000)}`),
        button("zoom to this", () => {
          close();
          this.show({ seconds: Math.max(10, Math.round(to - from)), until: Math.round(to * 1000) });
        }),
        button("what differed here?", () => void this.difference(from, to, answer)),
        button("close", close),
      ),
      answer,
    );
  }

  /** What was different in a part of the curve: explained drops first, then each link against the rest of the window. */
  private async difference(from: number, to: number, answer: HTMLElement): Promise<void> {
    const curve = this.curve;
    if (curve === null) return;
    answer.replaceChildren(el("p", "hint", "comparing …"));
    const lines: HTMLElement[] = [];
    try {
      const begin = Math.min(from, (curve.at[0] ?? from)) - EXPLAINED_SECONDS_MIN;
      const until = Math.round(to * 1000);
      const asked = { seconds: Math.min(SECONDS_MAX, Math.ceil(to - begin)), until };
      const changes = await api.rateChanges(asked);
      const within = changes.drops.filter((drop) => drop.from < until && drop.to > from * 1000);
      for (const drop of within) {
        const text = `${populationName(drop)}: ${rate(drop.low_bytes_per_second)} instead of ${rate(drop.usual_bytes_per_second)}`;
        lines.push(el("li", "drop", el("b", "", text), el("ul", "causes", ...causeLines(drop))));
      }
      if (within.length === 0) lines.push(el("li", "none", "No drop that the explainer calls one began or lasted here."));
    } catch (why) {
      lines.push(el("li", "bad", why instanceof Error ? why.message : "no explanation"));
    }
    for (const mark of this.marks.filter((one) => one.at >= from * 1000 && one.at < to * 1000))
      lines.push(el("li", "", `${clock(mark.at)}: ${mark.text}`));
    lines.push(...linkDifferences(curve, from, to));
    answer.replaceChildren(el("ul", "plain", ...lines));
  }

  private only(link: string | null): void {
    replaceQuery({ link });
    this.link = link;
    this.draw();
  }

  private show(window: WindowAsked): void {
    replaceQuery({
      range: window.seconds === 300 ? null : String(window.seconds),
      until: window.until === null ? null : String(window.until),
    });
    this.take(route());
    this.begin();
    void this.update().catch(() => undefined);
  }

  private step(steps: number): void {
    const { seconds, until } = this.window;
    const wanted = (until ?? Date.now()) + (steps * seconds * 1000) / 2;
    this.show({ seconds, until: wanted >= Date.now() ? null : Math.round(wanted) });
  }

  private zoom(factor: number): void {
    const { seconds, until } = this.window;
    const wanted = Math.min(SECONDS_MAX, Math.max(30, Math.round(seconds * factor)));
    // The middle stays in the middle, unless that were in the future.
    const end = until === null ? null : Math.min(Date.now(), until + ((wanted - seconds) * 1000) / 2);
    this.show({ seconds: wanted, until: end === null ? null : Math.round(end) });
  }

  private togglePause(): void {
    this.isPaused = !this.isPaused;
    setText(this.pause, this.isPaused ? "resume" : "pause");
    this.pause.setAttribute("aria-pressed", String(this.isPaused));
  }

  private take(to: Route): void {
    const seconds = Number(to.query.get("range") ?? 300);
    const until = Number(to.query.get("until") ?? NaN);
    this.window = {
      seconds: Number.isFinite(seconds) ? Math.min(SECONDS_MAX, Math.max(10, Math.round(seconds))) : 300,
      until: Number.isFinite(until) ? until : null,
    };
    this.link = to.query.get("link");
    for (const node of this.rangeButtons)
      node.setAttribute(
        "aria-pressed",
        String(this.window.until === null && node.dataset["seconds"] === String(this.window.seconds)),
      );
  }

  /** Forgets what was of another window. */
  private begin(): void {
    this.generation += 1;
    this.recent = new Recent(this.window.seconds);
    this.curve = null;
    this.marks = [];
    this.rateDrops = [];
    this.curveAt = 0;
    this.explainedAt = 0;
    this.chosen.replaceChildren();
    this.chart.clearSelection();
  }
}

/** Which links moved less, or more, in a part than in the rest of the window; the largest difference first. */
function linkDifferences(curve: Curve, from: number, to: number): HTMLElement[] {
  const mean = (values: (number | null)[], isInside: boolean): number => {
    let [sum, steps] = [0, 0];
    curve.at.forEach((at, n) => {
      if ((at + curve.step > from && at < to) !== isInside || curve.total[n] === null) return;
      sum += values[n] ?? 0;
      steps += 1;
    });
    return steps === 0 ? 0 : sum / steps;
  };
  const rows = [...curve.links].map(([key, link]) => {
    const [here, elsewhere] = [mean(link.rates, true), mean(link.rates, false)];
    return { key, link, here, elsewhere, by: here - elsewhere };
  });
  rows.sort((a, b) => Math.abs(b.by) - Math.abs(a.by));
  return rows
    .filter(({ here, elsewhere }) => Math.abs(here - elsewhere) > 0.05 * Math.max(here, elsewhere))
    .slice(0, 6)
    .map(({ key, link, here, elsewhere }) => {
      const pairs: [string, (number | null)[]][] = [
        ["moving", link.active],
        ["limit", link.limit],
        ["waiting", link.queued],
      ];
      const others = pairs.map(([name, values]) => `${name} ${count(mean(values, true))} (otherwise ${count(mean(values, false))})`);
      return el(
        "li",
        "",
        el("span", `swatch series-${colourOf(key)}`),
        el("b", "", `${short(key)}: ${rate(here)}`),
        ` instead of ${rate(elsewhere)} in the rest of this time; ${others.join(", ")}`,
      );
    });
}

const rangeText = (seconds: number): string =>
  RANGES.find(([known]) => known === seconds)?.[1] ?? (seconds % 86_400 === 0 ? `${seconds / 86_400} d` : duration(seconds));

/** `a → b`, with schemes only where they are not https. */
export const short = (key: string): string =>
  key
    .split(" → ")
    .map((end) => (end.startsWith("https:") ? host(end) : end))
    .join(" → ");
