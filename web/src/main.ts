// The frame around all pages: who has signed in, which page is shown, and when it is brought up to date. Only the page that
// is shown asks the service, and only while the browser shows it; one question at a time, so that a slow service is asked
// less often, not more.

import { enterByLink, type Entry, leadsIn } from "./access-link.ts";
import { NoAnswer, overview } from "./api.ts";
import { ConfigurationPage } from "./dashboard/configuration.ts";
import { FindPage } from "./dashboard/find.ts";
import { DropPage, IncidentPage, IncidentsPage } from "./dashboard/incidents.ts";
import { JobPage } from "./dashboard/job.ts";
import { JobsPage } from "./dashboard/jobs.ts";
import { LinksPage } from "./dashboard/links.ts";
import { OverviewPage } from "./dashboard/overview.ts";
import { StoragePage } from "./dashboard/storage.ts";
import { TransferPage } from "./dashboard/transfer.ts";
import { byId, setText } from "./dom.ts";
import { clock } from "./format.ts";
import type { Page } from "./page.ts";
import { type Route, route } from "./route.ts";
import { forgetToken, keepToken, readAddress, token } from "./session.ts";

const RETRY_MS = 1000;
const RETRY_MAX_MS = 10_000;

const PAGES: Record<string, (name: string) => Page> = {
  overview: () => new OverviewPage(),
  links: () => new LinksPage(),
  jobs: () => new JobsPage(),
  job: (name) => new JobPage(name),
  find: () => new FindPage(),
  transfer: (name) => new TransferPage(name),
  storage: () => new StoragePage(),
  incidents: () => new IncidentsPage(),
  incident: (name) => new IncidentPage(name),
  drop: (name) => new DropPage(name),
  configuration: () => new ConfigurationPage(),
};
/** Which entry of the navigation a page belongs to. */
const PARTS: Record<string, string> = { job: "jobs", find: "jobs", transfer: "jobs", incident: "incidents", drop: "incidents" };

const main = byId("page");
const form = byId("token-form") as HTMLFormElement;
const connection = byId("connection");
const navigation = byId("navigation");

let page: Page | null = null;
let shown: Route = route();
let site = "";
let updatedAt: number | null = null;
let failures = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let isAsking = false;
let entry: Entry = "none";

function open(): void {
  const to = route();
  const isSame = page !== null && to.page === shown.page && to.name === shown.name;
  shown = to;
  if (isSame && page?.follow?.(to) === true) return void round();
  page?.leave?.();
  const make = PAGES[to.page] ?? PAGES["overview"]!;
  page = make(to.name);
  updatedAt = null;
  main.replaceChildren(page.node);
  const part = PARTS[to.page] ?? (to.page in PAGES ? to.page : "overview");
  for (const entry of navigation.querySelectorAll("a")) {
    if (entry.dataset["part"] === part) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
  void round();
}

async function round(): Promise<void> {
  if (isAsking || page === null) return;
  isAsking = true;
  clearTimeout(timer);
  const begun = Date.now();
  const asked = page;
  try {
    if (site === "") site = (await overview()).site;
    await asked.update();
    failures = 0;
    updatedAt = Date.now();
    form.hidden = true;
    main.hidden = false;
    navigation.hidden = false;
    byId("signed-in").hidden = false;
    setText(byId("site"), site);
    document.title = `${asked.title} · ${site} · Penstock`;
    say(asked.every === null ? `as of ${clock(updatedAt)}` : "live", "good");
    if (asked.every !== null) schedule(Math.max(100, asked.every - (Date.now() - begun)));
  } catch (why) {
    failed(why);
  } finally {
    isAsking = false;
  }
  // Another page was opened meanwhile.
  if (asked !== page) void round();
}

function failed(why: unknown): void {
  // Whoever may not even see the overview needs another token.
  const needsToken = why instanceof NoAnswer && (why.kind === "unauthorised" || (why.kind === "forbidden" && site === ""));
  if (needsToken) {
    askForToken(why);
    return;
  }
  failures += 1;
  const wait = Math.min(RETRY_MS * 2 ** (failures - 1), RETRY_MAX_MS);
  const what = why instanceof Error ? why.message : String(why);
  const since = updatedAt === null ? "" : ` Shown: the state at ${clock(updatedAt)}.`;
  const isRefused = why instanceof NoAnswer && (why.kind === "refused" || why.kind === "forbidden");
  const kind = isRefused ? "the service refused" : "the service is unreachable";
  say(`${kind} (${what}); next try in ${Math.round(wait / 1000)} s.${since}`, "bad");
  schedule(wait);
}

function askForToken(why: NoAnswer): void {
  main.hidden = true;
  navigation.hidden = true;
  byId("signed-in").hidden = true;
  form.hidden = false;
  site = "";
  // What was shown to somebody else does not stay behind the form.
  page?.leave?.();
  page = null;
  main.replaceChildren();
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
  main.classList.toggle("stale", mood === "bad");
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

addEventListener("hashchange", () => {
  if (leadsIn()) {
    location.reload();
    return;
  }
  const before = token();
  readAddress();
  if (form.hidden || token() !== before) open();
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const input = byId("token") as HTMLInputElement;
  if (input.value.trim() === "") return;
  keepToken(input.value);
  input.value = "";
  say("connecting …", "warn");
  open();
});

byId("forget").addEventListener("click", () => {
  clearTimeout(timer);
  forgetToken();
  askForToken(new NoAnswer("unauthorised", "no token was sent"));
});

entry = await enterByLink();
readAddress();
if (typeof entry === "object") {
  askForToken(new NoAnswer("unauthorised", entry.refused));
  setText(byId("token-why"), entry.refused);
} else if (entry !== "view") open();
