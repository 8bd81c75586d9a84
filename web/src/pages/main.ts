// Makes the door's pages act: moving about without losing uploads, signing in, and everything that changes files.
// Without this script the pages still show and download.

import { byId, el } from "../dom.ts";
import { bytes } from "../format.ts";
import { forgetToken, keepToken, token } from "../session.ts";
import { ask as askReader, choose, labelled, notify, textInput } from "./dialogs.ts";
import { Refusal, ask, below, credentials, lastName, linkAuthorisation, macaroon, nameProblem } from "./door.ts";
import "./pages.css";
import { share } from "./share.ts";
import * as uploads from "./uploads.ts";

const RESUMABLE_FROM = 64 * 1024 * 1024;
/** A file that can only be fetched into the tab's memory. */
const IN_MEMORY_MAX = 512 * 1024 * 1024;

interface Page {
  kind: "directory" | "file" | "refused";
  path: string;
  may(word: string): boolean;
  known: boolean;
  resumableFrom: number;
}

function page(): Page {
  const { kind, path, can, known, resumableFrom } = byId("main").dataset;
  const words = new Set((can ?? "").split(" "));
  return {
    kind: (kind ?? "refused") as Page["kind"],
    path: path ?? "/",
    may: (word) => words.has(word),
    known: known !== undefined,
    resumableFrom: Number(resumableFrom ?? RESUMABLE_FROM),
  };
}

let loading: AbortController | null = null;

/** Shows another page in place of this one. */
async function load(href: string, push: boolean): Promise<void> {
  loading?.abort();
  loading = new AbortController();
  const headers = { Accept: "text/html", ...credentials() };
  let text: string;
  try {
    const response = await fetch(href, { headers, signal: loading.signal, cache: "no-store" });
    if (!(response.headers.get("Content-Type") ?? "").startsWith("text/html")) {
      location.assign(href);
      return;
    }
    text = await response.text();
  } catch (error) {
    // Another page was asked for meanwhile; that is no error.
    if (!(error instanceof DOMException)) notify("The door does not answer; try again.", true);
    return;
  }
  // Markup of our own server, in which every name is text; scripts in it would not run.
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const main = fresh.getElementById("main");
  const user = fresh.getElementById("user");
  if (main === null || user === null) return;
  const { resumableFrom } = byId("main").dataset;
  if (resumableFrom !== undefined) main.dataset["resumableFrom"] = resumableFrom;
  byId("main").replaceWith(document.adoptNode(main));
  byId("user").replaceWith(document.adoptNode(user));
  document.title = fresh.title;
  if (push) {
    history.pushState(null, "", href);
    scrollTo(0, 0);
  }
  equip();
}

const refresh = (): Promise<void> => load(location.href, false);

function button(name: string, style: string, act: () => void): HTMLButtonElement {
  const made = el("button", style, name);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

/** Gives the page that is shown its buttons. */
function equip(): void {
  const here = page();
  const tools = byId("tools");
  tools.replaceChildren();
  if (here.kind === "directory") equipDirectory(here, tools);
  if (here.kind === "file") tools.append(...entryButtons(here, here.path, false));
  if (here.kind === "refused") offerSignIn();
  equipWho(here);
}

function equipWho(here: Page): void {
  const who = byId("who");
  for (const old of who.querySelectorAll("button")) old.remove();
  if (token() !== null && linkAuthorisation() === null) {
    const out = () => {
      forgetToken();
      void refresh();
    };
    who.append(button("sign out", "quiet", out));
  } else if (!here.known) {
    who.append(button("sign in", "quiet", () => void signIn()));
  }
}

function equipDirectory(here: Page, tools: HTMLElement): void {
  if (here.may("create")) {
    const picker = el("input", "unseen");
    picker.type = "file";
    picker.multiple = true;
    picker.tabIndex = -1;
    picker.setAttribute("aria-label", "Files to upload");
    picker.addEventListener("change", () => {
      take([...(picker.files ?? [])]);
      picker.value = "";
    });
    tools.append(button("Upload files", "", () => picker.click()), picker);
  }
  if (here.may("mkdir")) tools.append(button("New folder", "second", () => void makeFolder(here)));
  if (here.may("share")) {
    const name = here.path === "/" ? "everything" : lastName(here.path);
    tools.append(button("Share", "second", () => share(here.path, name, true, here.may("create"))));
  }
  if (here.may("create")) tools.append(el("span", "hint drop-hint", "or drop files anywhere on this page"));
  for (const known of uploads.waitingHere(here.path)) tools.append(waiting(known));
  if (!here.may("delete") && !here.may("rename") && !here.may("share")) return;
  for (const row of document.querySelectorAll<HTMLTableRowElement>("tr[data-href]")) {
    const href = row.dataset["href"] ?? "";
    const open = button("⋯", "quiet dots", () => offerEntry(here, href, row.dataset["kind"] === "directory"));
    open.setAttribute("aria-label", `More for ${lastName(href)}`);
    open.setAttribute("aria-haspopup", "dialog");
    row.querySelector(".more")?.append(open);
  }
}

/** An upload that was cut by leaving the page. */
function waiting(known: { name: string; upload: string }): HTMLElement {
  const drop = () => {
    uploads.giveUp(known.upload).catch(() => {});
    line.remove();
  };
  const line = el("p", "hint unfinished");
  line.append(
    el("bdi", "", known.name),
    " was not uploaded to its end: choose the file again and it goes on where it stopped.",
    button("give up", "quiet", drop),
  );
  return line;
}

function take(files: File[]): void {
  const here = page();
  const place = { directory: here.path, replace: here.may("replace"), resumableFrom: here.resumableFrom };
  const good = files.filter((file) => {
    const problem = nameProblem(file.name);
    if (problem !== null) notify(`${file.name}: ${problem}`, true);
    return problem === null;
  });
  if (good.length > 0) uploads.add(good, place);
  for (const line of document.querySelectorAll(".unfinished")) line.remove();
}

function entryButtons(here: Page, href: string, isDirectory: boolean): HTMLElement[] {
  const choices = entryChoices(here, href, isDirectory);
  return choices.map(({ name, style, run }) => button(name, style ?? "second", run));
}

function offerEntry(here: Page, href: string, isDirectory: boolean): void {
  const go = { name: isDirectory ? "Open" : "Details", run: () => void load(linked(href, isDirectory), true) };
  choose(lastName(href), [go, ...entryChoices(here, href, isDirectory)]);
}

/** The address of an entry's page. */
function linked(href: string, isDirectory: boolean): string {
  const authorisation = linkAuthorisation();
  const pairs = isDirectory ? [] : ["details"];
  if (authorisation !== null) pairs.push(`authz=${encodeURIComponent(authorisation)}`);
  return `${href}${isDirectory ? "/" : ""}${pairs.length > 0 ? `?${pairs.join("&")}` : ""}`;
}

function entryChoices(
  here: Page,
  href: string,
  isDirectory: boolean,
): { name: string; style?: string; run: () => void }[] {
  const name = lastName(href);
  const choices = [];
  if (here.may("share")) {
    const run = () => share(href, name, isDirectory, here.may("create"));
    choices.push({ name: "Share", run });
  }
  if (here.may("rename")) choices.push({ name: "Rename", run: () => void rename(href, isDirectory) });
  if (here.may("delete"))
    choices.push({ name: "Delete", style: "danger", run: () => void remove(href, isDirectory) });
  return choices;
}

async function makeFolder(here: Page): Promise<void> {
  const input = textInput("");
  const made = await askReader("New folder", [labelled("name", input)], "Make it", async () => {
    const problem = nameProblem(input.value);
    if (problem !== null) throw new Error(problem);
    await ask("MKCOL", below(here.path, input.value));
  });
  if (made) await refresh();
}

async function rename(href: string, isDirectory: boolean): Promise<void> {
  const input = textInput(lastName(href));
  const parent = href.replace(/\/[^/]*$/, "");
  let to = href;
  const done = await askReader("Rename", [labelled("new name", input)], "Rename", async () => {
    const problem = nameProblem(input.value);
    if (problem !== null) throw new Error(problem);
    to = below(parent, input.value);
    if (to === href) return;
    try {
      await ask("MOVE", href, { headers: { Destination: to, Overwrite: "F" } });
    } catch (error) {
      const taken = error instanceof Refusal && error.status === 412;
      throw taken ? new Error("That name is taken.") : error;
    }
  });
  if (!done) return;
  if (page().kind === "file") await load(linked(to, isDirectory), true);
  else await refresh();
}

async function remove(href: string, isDirectory: boolean): Promise<void> {
  const what = isDirectory ? "The folder and everything in it" : "The file";
  const text = el("p", "", `${what} will be deleted: `, el("bdi", "name", lastName(href)));
  const gone = await askReader("Delete?", [text], "Delete", async () => void (await ask("DELETE", href)), "danger");
  if (!gone) return;
  if (page().kind === "file") await load(linked(href.replace(/\/[^/]*$/, ""), true), true);
  else await refresh();
}

const TOKEN_HINT =
  "Paste a token with access to this path, for example from `penstock token`. It is kept in this browser tab only.";

async function takeToken(input: HTMLInputElement): Promise<void> {
  const before = token();
  keepToken(input.value);
  const response = await fetch(location.pathname, {
    headers: { Accept: "text/html", ...credentials() },
    cache: "no-store",
  });
  if (response.status !== 401) return;
  if (before === null) forgetToken();
  else keepToken(before);
  throw new Error("This token is not accepted here; it may have expired.");
}

async function signIn(): Promise<void> {
  const input = textInput("", "password");
  const content = [labelled("token", input), el("p", "hint", TOKEN_HINT)];
  if (await askReader("Sign in", content, "Sign in", () => takeToken(input))) await refresh();
}

/** The same, inside a page that was refused. */
function offerSignIn(): void {
  const card = document.querySelector<HTMLElement>(".refused");
  if (card === null || !["401", "403"].includes(card.dataset["status"] ?? "")) return;
  const input = textInput("", "password");
  const problem = el("p", "bad");
  problem.setAttribute("role", "alert");
  const form = el("form", "sign-in", labelled("token", input), problem, el("button", "", "Sign in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await takeToken(input);
      await refresh();
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
    }
  });
  card.append(form, el("p", "hint", TOKEN_HINT));
}

/** Fetches a file with the token: by a link that is good for this file alone, so that the browser does the work. */
async function download(href: string): Promise<void> {
  const save = (address: string) => {
    const anchor = el("a");
    anchor.href = address;
    anchor.download = lastName(href);
    anchor.click();
  };
  try {
    const made = await macaroon(href, "DOWNLOAD", 60);
    save(`${href}?authz=${encodeURIComponent(made.text)}`);
  } catch (error) {
    if (!(error instanceof Refusal) || ![403, 405].includes(error.status)) throw error;
    // A door that makes no macaroons.
    const size = Number((await ask("HEAD", href)).headers.get("Content-Length") ?? "0");
    if (size > IN_MEMORY_MAX) throw new Error(`${bytes(size)} is too much for a browser tab; use 'penstock copy'.`);
    const address = URL.createObjectURL(await (await ask("GET", href)).blob());
    save(address);
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }
}

function followLinks(): void {
  document.addEventListener("click", (event) => {
    const anchor = (event.target as Element).closest?.("a");
    if (!anchor || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const url = new URL(anchor.href);
    if (url.origin !== location.origin) return;
    if (!anchor.classList.contains("file")) {
      event.preventDefault();
      void load(url.pathname + url.search, true);
    } else if (token() !== null && linkAuthorisation() === null) {
      event.preventDefault();
      download(url.pathname).catch((error: Error) => notify(error.message, true));
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target as HTMLFormElement;
    if (event.defaultPrevented || !form.classList.contains("jump")) return;
    event.preventDefault();
    const pairs = new URLSearchParams();
    for (const [key, value] of new FormData(form)) pairs.set(key, String(value));
    void load(`${new URL(form.action).pathname}?${pairs}`, true);
  });
  addEventListener("popstate", () => void refresh());
}

function takeDrops(): void {
  const carriesFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
  const over = (on: boolean) => document.body.classList.toggle("dropping", on && page().may("create"));
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    over(true);
  });
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) over(false);
  });
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    over(false);
    if (page().kind !== "directory" || !page().may("create")) {
      notify("You may not upload here.", true);
      return;
    }
    const given = [...(event.dataTransfer?.items ?? [])];
    const folders = given.filter((item) => item.webkitGetAsEntry?.()?.isDirectory).length;
    if (folders > 0) notify("Folders cannot be uploaded: create the folder here, then drop its files.", true);
    const files = given.filter((item) => item.kind === "file" && !item.webkitGetAsEntry?.()?.isDirectory);
    take(files.map((item) => item.getAsFile()).filter((file): file is File => file !== null));
  });
}

uploads.whenLanded((directory) => {
  if (page().kind === "directory" && page().path === directory) void refresh();
});
followLinks();
takeDrops();
equip();
if (token() !== null && linkAuthorisation() === null) void refresh();
