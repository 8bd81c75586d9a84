// The list of uploads below the page: a few run at once, the others wait; each can be stopped, and tried again.

import { el, meter, setText } from "../dom.ts";
import { bytes } from "../format.ts";
import { Refusal, ask, exists } from "./door.ts";
import { Lost, begin, findUnfinished, forget, goOn, offsetOf, send, unfinished } from "./sending.ts";

/** Uploads that run at once. */
const RUNNING_MAX = 2;
/** Seconds before the next try after a lost connection; the last one repeats. */
const WAITS = [1, 2, 4, 8, 15, 30];

type State = "waiting" | "sending" | "lost" | "paused" | "exists" | "done" | "failed" | "canceled";

export interface Place {
  /** The directory, encoded. */
  directory: string;
  /** May replace what stands there. */
  replace: boolean;
  /** Files of this many bytes and more go in pieces. */
  resumableFrom: number;
}

interface Item {
  target: string;
  file: File;
  place: Place;
  state: State;
  replacing: boolean;
  upload: string | null;
  stop: AbortController;
  show: () => void;
  sent: number;
  text: string;
}

const items: Item[] = [];
let panel: { node: HTMLElement; list: HTMLElement; title: HTMLElement } | null = null;
let onLanded: (directory: string) => void = () => {};

/** Who wants to know that a file has arrived. */
export function whenLanded(hear: (directory: string) => void): void {
  onLanded = hear;
}

export function add(files: File[], place: Place): void {
  for (const file of files) {
    const target = `${place.directory.replace(/\/+$/, "")}/${encodeURIComponent(file.name)}`;
    const item: Item = {
      target,
      file,
      place,
      state: "waiting",
      replacing: false,
      upload: findUnfinished(target, file),
      stop: new AbortController(),
      show: () => {},
      sent: 0,
      text: "",
    };
    items.push(item);
    item.show = row(item);
    item.show();
  }
  showPanel();
  startNext();
}

/** Uploads that an earlier page began in this directory and that wait for their file. */
export function waitingHere(directory: string): { name: string; upload: string; target: string }[] {
  const prefix = `${directory.replace(/\/+$/, "")}/`;
  const running = new Set(items.filter((item) => item.state !== "canceled").map((item) => item.upload));
  return unfinished().filter(
    (known) =>
      known.target.startsWith(prefix) &&
      !known.target.slice(prefix.length).includes("/") &&
      !running.has(known.upload),
  );
}

/** Gives up an upload that an earlier page began. */
export async function giveUp(upload: string): Promise<void> {
  forget(upload);
  await ask("DELETE", upload);
}

addEventListener("beforeunload", (event) => {
  if (items.some((item) => item.state === "sending" || item.state === "waiting")) event.preventDefault();
});

function startNext(): void {
  for (const item of items) {
    const running = items.filter((other) => other.state === "sending" || other.state === "lost").length;
    if (running >= RUNNING_MAX) return;
    if (item.state === "waiting") void run(item);
  }
}

function become(item: Item, state: State, text = ""): void {
  item.state = state;
  item.text = text;
  item.show();
  showPanel();
}

async function run(item: Item): Promise<void> {
  item.stop = new AbortController();
  become(item, "sending");
  try {
    if (item.upload === null && !item.replacing && (await exists(item.target))) {
      become(item, "exists", item.place.replace ? "already exists" : "already exists and cannot be replaced");
    } else {
      await (item.file.size >= item.place.resumableFrom || item.upload !== null ? inPieces(item) : atOnce(item));
      item.sent = item.file.size;
      become(item, "done");
      onLanded(item.place.directory);
    }
  } catch (error) {
    if (item.stop.signal.aborted) {
      // Whoever stopped it has said what it is now.
    } else if (error instanceof Refusal && error.status === 412 && !item.replacing) {
      become(item, "exists", "already exists");
    } else {
      become(item, "failed", error instanceof Error ? error.message : String(error));
    }
  }
  startNext();
}

const conditions = (item: Item): Record<string, string> => (item.replacing ? {} : { "If-None-Match": "*" });

async function atOnce(item: Item): Promise<void> {
  const progress = (sent: number) => {
    item.sent = sent;
    item.show();
  };
  await send("PUT", item.target, conditions(item), item.file, item.stop.signal, progress);
}

/** Until it is there or refused: a lost connection only makes it wait. */
async function inPieces(item: Item): Promise<void> {
  const signal = item.stop.signal;
  let losses = 0;
  for (;;) {
    try {
      if (item.upload !== null) {
        const known = await offsetOf(item.upload, signal);
        if (known === null) {
          forget(item.upload);
          item.upload = null;
        } else if (known.complete) {
          break;
        } else {
          item.sent = known.offset;
        }
      }
      if (item.upload === null) {
        item.sent = 0;
        item.upload = await begin(item.target, item.file, conditions(item), signal);
      }
      become(item, "sending");
      await goOn(item.upload, item.file, item.sent, signal, (sent) => {
        losses = 0;
        item.sent = sent;
        item.show();
      });
      break;
    } catch (error) {
      const passes = error instanceof Lost || (error instanceof Refusal && [409, 502, 503, 504].includes(error.status));
      if (signal.aborted || !passes) throw error;
      const seconds = WAITS[Math.min(losses, WAITS.length - 1)] ?? 30;
      losses += 1;
      become(item, "lost", `${error.message}; next try in ${seconds} s`);
      await pause(seconds, signal);
    }
  }
  if (item.upload !== null) forget(item.upload);
}

function pause(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((done, failed) => {
    const stop = () => {
      clearTimeout(timer);
      failed(new DOMException("stopped", "AbortError"));
    };
    const go = () => {
      signal.removeEventListener("abort", stop);
      removeEventListener("online", go);
      clearTimeout(timer);
      done();
    };
    const timer = setTimeout(go, seconds * 1000);
    signal.addEventListener("abort", stop, { once: true });
    addEventListener("online", go);
  });
}

function hold(item: Item): void {
  become(item, "paused");
  item.stop.abort();
}

function again(item: Item, replacing = item.replacing): void {
  item.replacing = replacing;
  become(item, "waiting");
  startNext();
}

function cancel(item: Item): void {
  become(item, "canceled");
  item.stop.abort();
  if (item.upload !== null) giveUp(item.upload).catch(() => {});
}

/** The item's row; gives back what brings it up to date. */
function row(item: Item): () => void {
  const bar = meter(`${item.file.name} sent`);
  const status = el("span", "status");
  const buttons = el("span", "buttons");
  const node = el(
    "li",
    "upload",
    el("span", "upload-name", el("bdi", "", item.file.name)),
    status,
    bar.node,
    buttons,
  );
  let shown: State | null = null;
  const button = (name: string, act: () => void) => {
    const made = el("button", "quiet", name);
    made.type = "button";
    made.setAttribute("aria-label", `${name} ${item.file.name}`);
    made.addEventListener("click", act);
    return made;
  };
  const offered = (): HTMLElement[] => {
    const stop = button("cancel", () => cancel(item));
    switch (item.state) {
      case "sending":
      case "lost":
        return item.file.size >= item.place.resumableFrom ? [button("pause", () => hold(item)), stop] : [stop];
      case "waiting":
        return [stop];
      case "paused":
        return [button("resume", () => again(item)), stop];
      case "exists":
        return item.place.replace ? [button("replace", () => again(item, true)), stop] : [stop];
      case "failed":
        return [button("retry", () => again(item)), stop];
      case "done":
      case "canceled":
        return [];
    }
  };
  panelNode().list.append(node);
  return () => {
    bar.show(item.state === "done" ? 1 : item.sent, item.state === "done" ? 1 : Math.max(item.file.size, 1));
    const share = item.file.size === 0 ? 100 : Math.floor((item.sent / item.file.size) * 100);
    const texts: Record<State, string> = {
      waiting: "waits",
      sending: `${share} % of ${bytes(item.file.size)}`,
      lost: item.text,
      paused: `paused at ${share} %`,
      exists: item.text,
      done: `${bytes(item.file.size)}, stored`,
      failed: item.text,
      canceled: "canceled",
    };
    setText(status, texts[item.state]);
    if (item.state === shown) return;
    shown = item.state;
    node.dataset["state"] = item.state;
    buttons.replaceChildren(...offered());
  };
}

function panelNode(): { node: HTMLElement; list: HTMLElement; title: HTMLElement } {
  if (panel !== null) return panel;
  const title = el("h2");
  title.setAttribute("role", "status");
  const list = el("ul", "upload-list");
  const clear = el("button", "quiet", "clear");
  clear.type = "button";
  clear.addEventListener("click", () => {
    for (let index = items.length - 1; index >= 0; index -= 1) {
      if (!["done", "canceled", "failed", "exists"].includes(items[index]?.state ?? "")) continue;
      list.children[index]?.remove();
      items.splice(index, 1);
    }
    showPanel();
  });
  const node = el("aside", "card uploads", el("div", "title-row", title, clear), list);
  node.setAttribute("aria-label", "Uploads");
  document.body.append(node);
  panel = { node, list, title };
  return panel;
}

function showPanel(): void {
  const { node, title } = panelNode();
  node.hidden = items.length === 0;
  const done = items.filter((item) => item.state === "done").length;
  const open = items.filter((item) => ["waiting", "sending", "lost", "paused"].includes(item.state)).length;
  setText(title, open > 0 ? `Uploading, ${done} of ${items.length} done` : `${done} of ${items.length} uploaded`);
}
