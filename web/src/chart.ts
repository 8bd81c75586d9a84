// Two charts above each other: the rate over time, stacked by link, and the transfers that run, may run and wait. uPlot
// draws them (decision 0024); colours come from the style sheet.

import uPlot from "uplot";
import type { Curve } from "./curve.ts";
import { el } from "./dom.ts";
import { clock, count, moment, rate } from "./format.ts";
import type { Mark, RateChangeRow } from "./types.ts";

/** One band of the stack. The last band may stand for all links that have none of their own (`key` null). */
export interface Band {
  key: string | null;
  label: string;
  colour: number;
}

export interface ChartContent {
  curve: Curve;
  bands: Band[];
  drops: RateChangeRow[];
  marks: Mark[];
}

const RATE_HEIGHT = 240;
const SLOTS_HEIGHT = 110;
/** Room for labels of the axes on both charts, so that their times stand above each other. */
const LEFT = 76;
const RIGHT = 52;

type Column = (number | null)[];

export class Chart {
  private readonly rateBox = el("div", "plot");
  private readonly slotsBox = el("div", "plot");
  private readonly tip = el("div", "tip");
  private rates: uPlot | null = null;
  private slots: uPlot | null = null;
  private content: ChartContent | null = null;
  private shape = "";
  private readonly resized: ResizeObserver;
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");
  private readonly recolour = (): void => this.rebuild();

  /** `select` is told what was dragged over, in seconds since 1970. */
  constructor(
    private readonly box: HTMLElement,
    private readonly select: (from: number, to: number) => void,
  ) {
    this.tip.hidden = true;
    this.rateBox.setAttribute("role", "img");
    this.slotsBox.setAttribute("role", "img");
    box.append(this.rateBox, el("p", "hint slots-title", "files moving at once (area), their limit (dashed), files waiting (line, right axis)"), this.slotsBox, this.tip);
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(box);
    this.dark.addEventListener("change", this.recolour);
  }

  close(): void {
    this.resized.disconnect();
    this.dark.removeEventListener("change", this.recolour);
    this.rates?.destroy();
    this.slots?.destroy();
  }

  show(content: ChartContent): void {
    this.content = content;
    const shape = content.bands.map((band) => `${band.key} ${band.colour}`).join("|");
    if (this.rates === null || this.slots === null || shape !== this.shape) {
      this.shape = shape;
      this.rebuild();
    } else {
      this.rates.setData(this.rateData(content) as uPlot.AlignedData);
      this.slots.setData(this.slotsData(content) as uPlot.AlignedData);
    }
    this.describe(content);
  }

  clearSelection(): void {
    this.rates?.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  private width(): number {
    return Math.max(this.box.clientWidth, 240);
  }

  private resize(): void {
    const width = this.width();
    if (this.rates !== null && this.rates.width !== width) {
      this.rates.setSize({ width, height: RATE_HEIGHT });
      this.slots?.setSize({ width, height: SLOTS_HEIGHT });
    }
  }

  private rebuild(): void {
    if (this.content === null) return;
    this.rates?.destroy();
    this.slots?.destroy();
    const colour = readColours(this.box);
    const width = this.width();
    const narrow = width < 560;
    const time = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: FONT, size: 30 };
    const left = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: FONT, size: narrow ? 66 : LEFT };
    const right = narrow ? 40 : RIGHT;
    const sync = uPlot.sync(`chart ${Math.random()}`);
    const cursor: uPlot.Cursor = {
      sync: { key: sync.key },
      drag: { x: true, y: false, setScale: false },
      points: { show: false },
      y: false,
    };
    const bands = this.content.bands;
    const rates: uPlot.Options = {
      width,
      height: RATE_HEIGHT,
      legend: { show: false },
      cursor,
      padding: [12, right, 0, 0],
      scales: { x: { time: true }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1e6] } },
      axes: [{ ...time, values: timeLabels }, { ...left, values: (_, values) => values.map((value) => rate(value)) }],
      series: [
        {},
        ...bands.map((band) => ({
          label: band.label,
          width: 0,
          fill: translucent(colour(`--series-${band.colour}`), 0.72),
          points: { show: false },
          spanGaps: false,
        })),
      ],
      bands: bands.slice(1).map((_, n) => ({ series: [n + 2, n + 1] as [number, number] })),
      hooks: {
        drawClear: [(plot) => this.drawDrops(plot, colour)],
        draw: [(plot) => this.drawMarks(plot, colour)],
        setCursor: [(plot) => this.point(plot)],
        setSelect: [(plot) => this.selected(plot)],
      },
    };
    const slots: uPlot.Options = {
      width,
      height: SLOTS_HEIGHT,
      legend: { show: false },
      cursor: { ...cursor, drag: { x: false, y: false } },
      padding: [8, 0, 0, 0],
      scales: {
        x: { time: true },
        y: { range: (_, __, most) => [0, Math.max(1, most) * 1.1] },
        queued: { range: (_, __, most) => [0, Math.max(1, most) * 1.1] },
      },
      axes: [
        { ...time, values: timeLabels },
        { ...left, values: (_, values) => values.map(whole), space: 24 },
        { ...left, scale: "queued", side: 1, size: right, grid: { show: false }, space: 24, values: (_, values) => values.map(whole) },
      ],
      series: [
        {},
        { label: "moving", width: 1, stroke: colour("--accent"), fill: translucent(colour("--accent"), 0.3), points: { show: false } },
        { label: "limit", width: 1.2, dash: [5, 4], stroke: colour("--text"), points: { show: false } },
        { label: "waiting", scale: "queued", width: 1.4, stroke: colour("--full"), points: { show: false } },
      ],
    };
    this.rates = new uPlot(rates, this.rateData(this.content) as uPlot.AlignedData, this.rateBox);
    this.slots = new uPlot(slots, this.slotsData(this.content) as uPlot.AlignedData, this.slotsBox);
  }

  /** Each band on top of those before it. */
  private rateData({ curve, bands }: ChartContent): Column[] {
    const sums: number[] = new Array<number>(curve.at.length).fill(0);
    const columns = bandRates(curve, bands).map((rates) =>
      rates.map((value, n) => {
        if (curve.total[n] === null) return null;
        sums[n] = (sums[n] ?? 0) + (value ?? 0);
        return sums[n];
      }),
    );
    return [curve.at, ...columns] as Column[];
  }

  private slotsData({ curve, bands }: ChartContent): Column[] {
    const shown = shownLinks(curve, bands);
    const sum = (of: "active" | "limit" | "queued"): Column =>
      curve.at.map((_, n) =>
        curve.total[n] === null ? null : shown.reduce((all, key) => all + (curve.links.get(key)?.[of][n] ?? 0), 0),
      );
    return [curve.at, sum("active"), sum("limit"), sum("queued")] as Column[];
  }

  private drawDrops(plot: uPlot, colour: (name: string) => string): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = translucent(colour("--full"), 0.2);
    for (const drop of this.content?.drops ?? []) {
      const [from, to] = [drop.from, drop.to].map((at) => clamped(plot.valToPos(at / 1000, "x", true), bbox));
      if (from === undefined || to === undefined || to <= from) continue;
      ctx.fillRect(from, bbox.top, Math.max(to - from, 2), bbox.height);
    }
    ctx.restore();
  }

  private drawMarks(plot: uPlot, colour: (name: string) => string): void {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `600 ${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.lineWidth = ratio;
    let free = -Infinity;
    for (const mark of this.content?.marks ?? []) {
      const x = Math.round(plot.valToPos(mark.at / 1000, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(mark.kind === "halt" || mark.kind === "ban" ? "--bad" : "--muted");
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      // A letter for each kind; the list below the chart has the words.
      if (x - free > 9 * ratio) {
        ctx.fillText(MARK_LETTERS[mark.kind] ?? "?", x, bbox.top - 2 * ratio);
        free = x;
      }
    }
    ctx.restore();
  }

  private selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 4) return;
    this.select(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  private point(plot: uPlot): void {
    const n = plot.cursor.idx;
    const left = plot.cursor.left ?? -1;
    const content = this.content;
    const at = n === null || n === undefined ? undefined : content?.curve.at[n];
    this.tip.hidden = at === undefined || left < 0;
    if (content === null || at === undefined || n === null || n === undefined || left < 0) return;
    const when = content.curve.step > 1 ? moment(at * 1000) : clock(at * 1000);
    this.tip.replaceChildren(el("b", "", when), ...tipLines(content, n));
    const x = left + LEFT;
    const isRight = x > this.width() / 2;
    this.tip.style.left = isRight ? "auto" : `${x + 14}px`;
    this.tip.style.right = isRight ? `${this.width() - x + 14}px` : "auto";
  }

  private describe({ curve }: ChartContent): void {
    const known = curve.total.filter((value): value is number => value !== null);
    const latest = known[known.length - 1];
    const most = known.length === 0 ? 0 : Math.max(...known);
    const [from, to] = [curve.at[0] ?? 0, (curve.at[curve.at.length - 1] ?? 0) + curve.step];
    const span = `${moment(from * 1000)} to ${moment(to * 1000)}`;
    const told = latest === undefined ? "no sample" : `latest ${rate(latest)}, highest ${rate(most)}`;
    this.rateBox.setAttribute("aria-label", `Rate from ${span}: ${told}`);
    this.slotsBox.setAttribute("aria-label", `Files moving, their limit and files waiting from ${span}`);
  }
}

const FONT = "12px system-ui, sans-serif";
const MARK_LETTERS: Record<string, string> = { start: "S", ban: "B", drain: "D", limit: "L", halt: "H" };

const whole = (value: number): string => (Number.isInteger(value) ? count(value) : "");

/** Local time: the day where it begins. */
function timeLabels(_: uPlot, values: number[], __: number, ___: number, step: number): string[] {
  let day = "";
  return values.map((value) => {
    const at = new Date(value * 1000);
    const today = at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    const time = at.toLocaleTimeString("en-GB", step < 60 ? {} : { hour: "2-digit", minute: "2-digit" });
    const isNew = day !== "" && today !== day;
    day = today;
    return step >= 86_400 || isNew ? today : time;
  });
}

const clamped = (x: number, box: { left: number; width: number }): number =>
  Math.min(Math.max(x, box.left), box.left + box.width);

/** Colours of the style sheet as the canvas takes them. */
function readColours(node: HTMLElement): (name: string) => string {
  const style = getComputedStyle(node);
  return (name) => style.getPropertyValue(name).trim() || "#808080";
}

function translucent(colour: string, share: number): string {
  const hex = /^#([0-9a-f]{6})$/i.exec(colour)?.[1];
  if (hex === undefined) return colour;
  const [red, green, blue] = [0, 2, 4].map((n) => parseInt(hex.slice(n, n + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
}

/** Rates of each band; that of "all others" is what the named ones leave of the total. */
export function bandRates(curve: Curve, bands: Band[]): Column[] {
  const named = bands.flatMap((band) => (band.key === null ? [] : [curve.links.get(band.key)?.rates]));
  return bands.map((band) =>
    curve.at.map((_, n) => {
      if (band.key !== null) return curve.links.get(band.key)?.rates[n] ?? 0;
      const others = named.reduce((sum, rates) => sum + (rates?.[n] ?? 0), 0);
      return Math.max(0, (curve.total[n] ?? 0) - others);
    }),
  );
}

function shownLinks(curve: Curve, bands: Band[]): string[] {
  const all = [...curve.links.keys()];
  return bands.some((band) => band.key === null) ? all : all.filter((key) => bands.some((band) => band.key === key));
}

function tipLines({ curve, bands, drops, marks }: ChartContent, n: number): HTMLElement[] {
  if (curve.total[n] === null) return [el("div", "", "nothing is known of this time")];
  const rates = bandRates(curve, bands).map((column) => column[n] ?? 0);
  const shown = bands.map((band, of) => ({ band, value: rates[of] ?? 0 })).filter(({ value }) => value > 0);
  const lines = shown.map(({ band, value }) =>
    el("div", "", el("span", `swatch series-${band.colour}`), `${band.label}: ${rate(value)}`),
  );
  if (shown.length !== 1) lines.push(el("div", "sum", `all: ${rate(rates.reduce((a, b) => a + b, 0))}`));
  const links = shownLinks(curve, bands);
  const sum = (of: "active" | "limit" | "queued"): number =>
    links.reduce((all, key) => all + (curve.links.get(key)?.[of][n] ?? 0), 0);
  lines.push(el("div", "sum", `${count(sum("active"))} of ${count(sum("limit"))} moving, ${count(sum("queued"))} waiting`));
  const [from, to] = [(curve.at[n] ?? 0) * 1000, ((curve.at[n] ?? 0) + curve.step) * 1000];
  for (const drop of drops.filter((one) => one.from < to && one.to > from).slice(0, 2))
    lines.push(el("div", "tip-drop", `drop: ${drop.causes[0]?.text ?? "not explained"}`));
  for (const mark of marks.filter((one) => one.at >= from && one.at < to).slice(0, 3))
    lines.push(el("div", "tip-mark", mark.text));
  return lines;
}

/** The names of the bands, for below the chart. */
export function legend(bands: Band[]): HTMLElement[] {
  if (bands.length < 2 && bands[0]?.key === null) return [];
  return bands.map((band) => el("li", "", el("span", `swatch series-${band.colour}`), band.label));
}
