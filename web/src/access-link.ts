// Links that give access to this page: `#login=SECRET` signs its reader in, once; `#view=SECRET` shows one job or transfer
// without names and paths. A secret is taken out of the address at once, because addresses are copied, logged and shown.

import { bytes, moment, plural } from "./format.ts";
import { byId, el, setText } from "./dom.ts";
import { keepToken } from "./session.ts";

const LINKS = "/api/v1/access-links";
/** Where this tab keeps the secret of a view, so that it can be loaded again. */
const VIEW = "penstock.view";
const TIMEOUT_MS = 8000;

interface Session {
  token: string;
  user: string;
}

interface ViewedFile {
  file_id: number;
  state: string;
  source: string;
  destination: string;
  size_bytes: number | null;
  text: string;
}

type View = {
  opens: string;
  expires_at: string;
  submitted: number;
} & (
  | { job_id: string; job_state: string; lines: string[]; files: ViewedFile[]; files_total: number }
  | (ViewedFile & { steps: { at: number; kind: string; text: string }[] })
);

/** What came of the link in the address, if there was one. */
export type Entry = "none" | "signed-in" | "view" | { refused: string };

/** Whether the address has a link to follow, as one that was pasted into it. */
export function leadsIn(): boolean {
  return /^#(login|view)=./.test(location.hash);
}

/** Follows the link in the address. */
export async function enterByLink(): Promise<Entry> {
  if (location.hash.startsWith("#/")) return "none";
  const wanted = new URLSearchParams(location.hash.slice(1));
  const login = wanted.get("login");
  const view = wanted.get("view");
  if (login === null && view === null) return "none";
  history.replaceState(null, "", `${location.pathname}${location.search}${view === null ? "" : "#view="}`);
  try {
    if (login !== null) {
      const body = JSON.stringify({ secret: login });
      const headers = { "Content-Type": "application/json" };
      const session = await ask<Session>(`${LINKS}/redeem`, { method: "POST", headers, body });
      keepToken(session.token);
      return "signed-in";
    }
    if (view !== null && view !== "") sessionStorage.setItem(VIEW, view);
    const secret = sessionStorage.getItem(VIEW) ?? "";
    show(await ask<View>(`${LINKS}/view`, { headers: { Authorization: `Bearer ${secret}` } }));
    return "view";
  } catch (why) {
    return { refused: why instanceof Error ? why.message : "the link could not be followed" };
  }
}

async function ask<T>(path: string, init: RequestInit): Promise<T> {
  const response = await fetch(path, {
    ...init,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const told = (await response.json().catch(() => ({}))) as T & { message?: string };
  if (!response.ok) throw new Error(told.message ?? `the service answered ${response.status}`);
  return told;
}

function show(view: View): void {
  const main = el("main", "shared-view");
  const end = new Date(view.expires_at).toLocaleString();
  const hint = el("p", "hint", `A shared view, without names of users and paths of files. It can be opened until ${end}.`);
  const content: Node[] = "job_id" in view ? job(view) : transfer(view);
  main.append(el("section", "card", ...content, hint));
  byId("page").before(main);
  setText(byId("connection"), "shared view");
}

function job(view: Extract<View, { job_id: string }>): Node[] {
  const files = view.files.map((file) =>
    el(
      "li",
      "",
      el("span", `state ${file.state.toLowerCase()}`, file.state),
      el("span", "grow", `file ${file.file_id}, ${file.source} → ${file.destination}: ${file.text}`),
    ),
  );
  const more = view.files_total - view.files.length;
  return [
    el("h2", "", `Job ${view.job_id}`),
    el("p", "", "Submitted ", moment(view.submitted)),
    ...view.lines.map((line) => el("p", "", line)),
    el("ul", "plain files", ...files),
    ...(more > 0 ? [el("p", "hint", `and ${plural(more, "more file")}`)] : []),
  ];
}

function transfer(view: Extract<View, { steps: unknown }>): Node[] {
  const steps = view.steps.map((step) => el("li", `step ${step.kind}`, el("span", "hint", moment(step.at, true)), ` ${step.text}`));
  const size = view.size_bytes === null ? "size not known" : bytes(view.size_bytes);
  return [
    el("h2", "", `Transfer ${view.file_id}`),
    el("p", "", el("b", `state ${view.state.toLowerCase()}`, view.state), `, ${view.source} → ${view.destination}, ${size}`),
    el("p", "", view.text),
    el("ol", "steps", ...steps),
  ];
}
