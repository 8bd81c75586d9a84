// The chart: rate over time, stacked by link, above the slots in use. Drawn as SVG, so that the style sheet
// themes it.

import { byId, el, svg } from "./dom.ts";
import { clock, count, rate, roundUp } from "./format.ts";
import type { Second } from "./history.ts";

/** One band of the stack. The last band may stand for all links that have none of their own (`key` null). */
export interface Band {
  key: string | null;
  label: string;
  /** Which colour of the style sheet: `series-0` … */
  colour: number;
}

const RATE_HEIGHT = 210;
const SLOTS_HEIGHT = 64;
const GAP = 30;
const TOP = 10;
const LEFT = 70;
const RIGHT = 10;
const BOTTOM = 24;
/** Bytes per second at the top of the axis while nothing moves. */
const IDLE_TOP = 1e6;
const HEIGHT = TOP + RATE_HEIGHT + GAP + SLOTS_HEIGHT + BOTTOM;

type Point = readonly [x: number, y: number];

export class Chart {
  private readonly picture = svg("svg", { role: "img", height: HEIGHT });
  private readonly tip = el("div", "tip");
  private width = 0;
  private seconds: Second[] = [];
  private bands: Band[] = [];
  private drops: { from: number; to: number }[] = [];
  private hover: number | null = null;

  constructor(private readonly box: HTMLElement) {
    this.tip.hidden = true;
    box.append(this.picture, this.tip);
    new ResizeObserver(() => this.draw()).observe(box);
    box.addEventListener("pointermove", (event) => this.point(event.clientX));
    box.addEventListener("pointerdown", (event) => this.point(event.clientX));
    box.addEventListener("pointerleave", () => this.point(null));
  }

  /** `drops` are stretches to shade, milliseconds since 1970. */
  show(seconds: Second[], bands: Band[], drops: { from: number; to: number }[]): void {
    this.seconds = seconds;
    this.bands = bands;
    this.drops = drops;
    this.draw();
  }

  private draw(): void {
    this.width = Math.max(this.box.clientWidth, 240);
    this.picture.setAttribute("width", String(this.width));
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.picture.replaceChildren();
    if (this.seconds.length === 0) return;
    this.drawDrops();
    this.drawRates();
    this.drawSlots();
    this.drawTimes();
    this.drawHover();
    const known = this.seconds.filter((second) => second.total !== null);
    const last = known[known.length - 1];
    const now = last === undefined ? "no sample yet" : `latest ${rate(bandSum(last, this.bands))}`;
    this.picture.setAttribute("aria-label", `Rate over the last ${this.seconds.length} seconds, ${now}`);
  }

  private x(n: number): number {
    const span = this.width - LEFT - RIGHT;
    return LEFT + (span * (n + 0.5)) / this.seconds.length;
  }

  private drawDrops(): void {
    const begin = this.seconds[0]?.at ?? 0;
    const length = this.seconds.length;
    for (const { from, to } of this.drops) {
      const [first, last] = [from, to].map((at) => Math.min(Math.max((at - begin) / 1000, 0), length));
      if (first === undefined || last === undefined || last <= first) continue;
      const x = this.x(first - 0.5);
      this.picture.append(
        svg("rect", {
          class: "shade",
          x,
          y: TOP,
          width: this.x(last - 0.5) - x,
          height: HEIGHT - TOP - BOTTOM,
        }),
      );
      if (last - first > 12) this.text(x + 5, TOP + 13, "drop", "start");
    }
  }

  private drawRates(): void {
    const most = Math.max(...this.seconds.map((second) => bandSum(second, this.bands)));
    const top = most > 0 ? roundUp(most * 1.05) : IDLE_TOP;
    const y = (value: number): number => TOP + RATE_HEIGHT * (1 - value / top);
    this.grid([0, top / 2, top].map((value) => ({ at: y(value), label: rate(value) })));
    this.bands.forEach((band, n) => {
      // The upper edge of a band of nothing is that of the band below, which has a colour of its own.
      if (this.seconds.every((second) => bandRate(second, band, this.bands) === 0)) return;
      const upper = this.runs((second) => y(bandSum(second, this.bands.slice(0, n + 1))));
      const lower = this.runs((second) => y(bandSum(second, this.bands.slice(0, n))));
      upper.forEach((run, of) => {
        this.picture.append(
          svg("path", { class: `band series-${band.colour}`, d: area(run, lower[of] ?? run) }),
        );
        this.picture.append(svg("path", { class: `edge series-${band.colour}`, d: line(run) }));
      });
    });
    if (this.seconds.every((second) => second.total === null)) {
      this.text(
        LEFT + (this.width - LEFT - RIGHT) / 2,
        TOP + RATE_HEIGHT / 2 - 14,
        "nothing moved in this time",
        "middle",
      );
    }
  }

  private drawSlots(): void {
    const base = TOP + RATE_HEIGHT + GAP + SLOTS_HEIGHT;
    const slots = this.seconds.map((second) => slotsOf(second, this.bands));
    const top = Math.max(1, ...slots.map((slot) => Math.max(slot.active, slot.limit)));
    const y = (value: number): number => base - (SLOTS_HEIGHT * value) / top;
    this.grid([
      { at: y(0), label: "0" },
      { at: y(top), label: count(top) },
    ]);
    this.text(LEFT, base - SLOTS_HEIGHT - 8, "files moving at once; the dashed line is the limit", "start");
    for (const run of this.runs((second) => y(slotsOf(second, this.bands).active))) {
      this.picture.append(
        svg("path", {
          class: "slots",
          d: area(
            run,
            run.map(([x]) => [x, base] as const),
          ),
        }),
      );
    }
    for (const run of this.runs((second) => y(slotsOf(second, this.bands).limit))) {
      this.picture.append(svg("path", { class: "limit", d: line(run) }));
    }
  }

  private drawTimes(): void {
    const base = HEIGHT - BOTTOM;
    const every = this.width < 560 ? 120 : 60;
    this.seconds.forEach((second, n) => {
      if ((second.at / 1000) % every !== 0) return;
      const x = this.x(n);
      this.picture.append(svg("line", { class: "tick", x1: x, x2: x, y1: base, y2: base + 4 }));
      if (x > LEFT + 12 && x < this.width - 24)
        this.text(x, base + 17, clock(second.at).slice(0, 5), "middle");
    });
  }

  private drawHover(): void {
    const second = this.hover === null ? undefined : this.seconds[this.hover];
    this.tip.hidden = second === undefined;
    if (this.hover === null || second === undefined) return;
    const x = this.x(this.hover);
    this.picture.append(svg("line", { class: "cross", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    this.tip.replaceChildren(el("b", "", clock(second.at)), ...tipLines(second, this.bands));
    const right = x > this.width / 2;
    this.tip.style.left = right ? "auto" : `${x + 12}px`;
    this.tip.style.right = right ? `${this.width - x + 12}px` : "auto";
  }

  private point(clientX: number | null): void {
    const span = this.width - LEFT - RIGHT;
    const at = clientX === null ? NaN : (clientX - this.box.getBoundingClientRect().left - LEFT) / span;
    this.hover = at >= 0 && at < 1 ? Math.floor(at * this.seconds.length) : null;
    this.draw();
  }

  /** The stretches without a gap, as points; a second of which nothing is known is a gap, not a zero. */
  private runs(y: (second: Second) => number): Point[][] {
    const runs: Point[][] = [];
    let run: Point[] = [];
    this.seconds.forEach((second, n) => {
      if (second.total !== null) {
        if (run.length === 0) runs.push(run);
        run.push([this.x(n), y(second)]);
      } else {
        run = [];
      }
    });
    return runs;
  }

  private grid(lines: { at: number; label: string }[]): void {
    for (const { at, label } of lines) {
      this.picture.append(svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: at, y2: at }));
      this.text(LEFT - 8, at + 4, label, "end");
    }
  }

  private text(x: number, y: number, content: string, anchor: string): void {
    const node = svg("text", { x, y, "text-anchor": anchor });
    node.textContent = content;
    this.picture.append(node);
  }
}

/** Puts the names of the bands under the chart. */
export function showLegend(bands: Band[]): void {
  const items = bands.map((band) => el("li", "", el("span", `swatch series-${band.colour}`), band.label));
  byId("legend").replaceChildren(...(bands.length > 1 ? items : []));
}

function bandRate(second: Second, band: Band, all: Band[]): number {
  if (band.key !== null) return second.links.get(band.key)?.rate ?? 0;
  const named = all.reduce((sum, other) => sum + (other.key === null ? 0 : bandRate(second, other, all)), 0);
  return Math.max(0, (second.total ?? 0) - named);
}

/** The sum of `bands`. "All others" is always the last of them, so a prefix never splits it. */
function bandSum(second: Second, bands: Band[]): number {
  return bands.reduce((sum, band) => sum + bandRate(second, band, bands), 0);
}

function slotsOf(second: Second, bands: Band[]): { active: number; limit: number; queued: number } {
  const others = bands.some((band) => band.key === null);
  const slots = { active: 0, limit: 0, queued: 0 };
  for (const [key, link] of second.links) {
    if (!others && !bands.some((band) => band.key === key)) continue;
    slots.active += link.active;
    slots.limit += link.limit;
    slots.queued += link.queued;
  }
  return slots;
}

function tipLines(second: Second, bands: Band[]): HTMLElement[] {
  if (second.total === null) return [el("div", "", "nothing moved or waited")];
  const lines = bands.map((band) =>
    el(
      "div",
      "",
      el("span", `swatch series-${band.colour}`),
      `${band.label}: ${rate(bandRate(second, band, bands))}`,
    ),
  );
  if (bands.length > 1) lines.push(el("div", "sum", `all: ${rate(bandSum(second, bands))}`));
  const slots = slotsOf(second, bands);
  lines.push(
    el(
      "div",
      "sum",
      `${count(slots.active)} of ${count(slots.limit)} moving, ${count(slots.queued)} waiting`,
    ),
  );
  return lines;
}

/** A single point is drawn as a short dash, because a line needs two. */
function widened(run: readonly Point[]): readonly Point[] {
  return run.length === 1 ? run.flatMap(([x, y]) => [[x - 1, y] as const, [x + 1, y] as const]) : run;
}

function line(run: readonly Point[]): string {
  return widened(run)
    .map(([x, y], n) => `${n === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`)
    .join("");
}

/** The area between two lines of equal length. */
function area(upper: readonly Point[], lower: readonly Point[]): string {
  const back = [...widened(lower)].reverse();
  return `${line(upper)}${back.map(([x, y]) => `L${x.toFixed(1)} ${y.toFixed(1)}`).join("")}Z`;
}
