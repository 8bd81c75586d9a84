// Asks the service each second while the page is visible, and shows the answer. One question at a time: a
// slow service is asked less often, not more.

import { enterByLink } from "./access-link.ts";
import * as api from "./api.ts";
import { NoAnswer } from "./api.ts";
import { Chart, showLegend, type Band } from "./chart.ts";
import { byId, setText } from "./dom.ts";
import { clock, host } from "./format.ts";
import { startFinder } from "./find.ts";
import { History, linkKey } from "./history.ts";
import {
  showActive,
  showDrops,
  showFailures,
  showHeadline,
  showLinks,
  showStages,
  showStorages,
  showWaiting,
} from "./panels.ts";
import { forgetToken, keepToken, readAddress } from "./session.ts";
import type { Overview, RateDrop } from "./types.ts";

const EVERY_MS = 1000;
const RETRY_MAX_MS = 10_000;
const CHART_SECONDS = 300;
const REPORT_SECONDS = 900;
const REPORT_EVERY_MS = 5000;
/** Links with a colour of their own; the rest share the last one. */
const BANDS_MAX = 6;

const page = byId("page");
const form = byId("token-form") as HTMLFormElement;
const connection = byId("connection");
const chart = new Chart(byId("chart"));
const past = new History(CHART_SECONDS);
const finder = startFinder();

let selected: string | null = null;
let seen: Overview | null = null;
let drops: RateDrop[] = [];
let reportAt = 0;
let failures = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let asking = false;
/** Colours stay with their link while the page is open, whatever its rank becomes. */
const colours = new Map<string, number>();

async function update(): Promise<void> {
  const [overview, piece] = await Promise.all([api.overview(), api.series(CHART_SECONDS, past.after)]);
  seen = overview;
  past.take(piece);
  show();
  if (Date.now() - reportAt >= REPORT_EVERY_MS) {
    const report = await api.report(REPORT_SECONDS);
    reportAt = Date.now();
    drops = report.drops;
    showDrops(report);
    showFailures(report);
    showStages(report);
  }
}

function show(): void {
  if (seen === null) return;
  form.hidden = true;
  if (page.hidden) {
    page.hidden = false;
    // What the address names could not be asked for before.
    finder.follow();
  }
  showHeadline(seen);
  showWaiting(seen);
  showActive(seen);
  showStorages(seen);
  showRates(seen);
}

function showRates(overview: Overview): void {
  const seconds = past.until(past.newest ?? overview.at);
  const sums = new Map<string, number>();
  for (const link of overview.links) sums.set(linkKey(link), 0);
  for (const second of seconds) {
    for (const [key, link] of second.links) sums.set(key, (sums.get(key) ?? 0) + link.rate);
  }
  if (selected !== null && !sums.has(selected)) selected = null;
  const ranked = [...sums].sort((a, b) => b[1] - a[1]).map(([key]) => key);
  for (const key of ranked) if (!colours.has(key)) colours.set(key, Math.min(colours.size, BANDS_MAX));
  const bands = bandsOf(ranked);
  chart.show(seconds, bands, drops);
  showLegend(bands);
  setText(
    byId("chart-title"),
    selected === null ? "Rate over the last 5 minutes" : `Rate over the last 5 minutes: ${short(selected)}`,
  );
  byId("all-links").hidden = selected === null;
  setText(
    byId("chart-note"),
    "Bytes per second, including attempts that failed later. " +
      "Gaps: no transfers, or the service was not running. Times are local.",
  );
  const rows = overview.links.map((link) => {
    const key = linkKey(link);
    return { link, selected: key === selected, colour: colours.get(key) ?? BANDS_MAX };
  });
  showLinks(rows, (key) => {
    selected = selected === key ? null : key;
    show();
  });
}

function bandsOf(ranked: string[]): Band[] {
  if (selected !== null)
    return [{ key: selected, label: short(selected), colour: colours.get(selected) ?? BANDS_MAX }];
  const named = ranked.filter((key) => (colours.get(key) ?? BANDS_MAX) < BANDS_MAX);
  const bands: Band[] = named.map((key) => ({
    key,
    label: short(key),
    colour: colours.get(key) ?? BANDS_MAX,
  }));
  if (ranked.length > named.length || ranked.length === 0) {
    bands.push({
      key: null,
      label: named.length === 0 ? "all links" : `${ranked.length - named.length} other links`,
      colour: BANDS_MAX,
    });
  }
  return bands;
}

/** `a → b` without schemes. */
function short(key: string): string {
  return key.split(" → ").map(host).join(" → ");
}

async function round(): Promise<void> {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  const begun = Date.now();
  try {
    await update();
    failures = 0;
    say("live", "good");
    schedule(Math.max(100, EVERY_MS - (Date.now() - begun)));
  } catch (why) {
    failed(why);
  } finally {
    asking = false;
  }
}

function failed(why: unknown): void {
  if (why instanceof NoAnswer && why.kind === "unauthorised") {
    askForToken(why);
    return;
  }
  failures += 1;
  const wait = Math.min(EVERY_MS * 2 ** (failures - 1), RETRY_MAX_MS);
  const what = why instanceof Error ? why.message : String(why);
  const since = seen === null ? "" : ` Shown: the state at ${clock(seen.at)}.`;
  const kind =
    why instanceof NoAnswer && why.kind === "refused" ? "the service refused" : "the service is unreachable";
  say(`${kind} (${what}); next try in ${Math.round(wait / 1000)} s.${since}`, "bad");
  schedule(wait);
}

function askForToken(why: NoAnswer): void {
  page.hidden = true;
  form.hidden = false;
  past.clear();
  seen = null;
  const sent = why.message !== "no token was sent";
  setText(
    byId("token-why"),
    sent
      ? `The service did not accept the token: ${why.message}`
      : "Paste an access token to see this service's transfers.",
  );
  say("not signed in", "warn");
  (byId("token") as HTMLInputElement).focus();
}

function say(text: string, mood: "good" | "warn" | "bad"): void {
  setText(connection, text);
  connection.className = `connection ${mood}`;
  page.classList.toggle("stale", mood === "bad");
}

function schedule(wait: number): void {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (!document.hidden) void round();
  }, wait);
}

document.addEventListener("visibilitychange", () => {
  if (entry === "view") return;
  if (document.hidden) {
    clearTimeout(timer);
    if (form.hidden) say("paused while this tab is hidden", "warn");
  } else if (form.hidden) {
    void round();
  }
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const input = byId("token") as HTMLInputElement;
  if (input.value.trim() === "") return;
  keepToken(input.value);
  input.value = "";
  say("connecting …", "warn");
  void round();
});

byId("all-links").addEventListener("click", () => {
  selected = null;
  show();
});

byId("forget").addEventListener("click", () => {
  clearTimeout(timer);
  forgetToken();
  askForToken(new NoAnswer("unauthorised", "no token was sent"));
});

const entry = await enterByLink();
readAddress();
if (typeof entry === "object") {
  askForToken(new NoAnswer("unauthorised", entry.refused));
  setText(byId("token-why"), entry.refused);
} else if (entry !== "view") void round();
