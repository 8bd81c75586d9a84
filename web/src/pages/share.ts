// Links that let others look at, fetch, or drop files, for a time and below one path only.

import { el } from "../dom.ts";
import { ask as askReader, labelled } from "./dialogs.ts";
import { macaroon } from "./door.ts";

const SPANS: [string, number][] = [
  ["an hour", 60],
  ["12 hours", 720],
  ["a day", 1440],
  ["a week", 10_080],
  ["30 days", 43_200],
];

function select(options: [string, string][], chosen: string): HTMLSelectElement {
  const node = el("select");
  for (const [name, value] of options) {
    const option = el("option", "", name);
    option.value = value;
    option.selected = value === chosen;
    node.append(option);
  }
  return node;
}

/** Asks for how long and for what, and shows the link. */
export function share(href: string, name: string, isDirectory: boolean, mayUpload: boolean): void {
  const span = select(
    SPANS.map(([text, minutes]) => [text, String(minutes)]),
    "720",
  );
  const kinds: [string, string][] = [["view and download", "DOWNLOAD,LIST"]];
  if (isDirectory && mayUpload) kinds.push(["list names and upload new files", "UPLOAD,LIST"]);
  const kind = select(kinds, "DOWNLOAD,LIST");
  const content: Node[] = [
    el("p", "hint", "Anybody who has the link can use it until it expires. It gives no access above ", el("bdi", "", name), "."),
    labelled("for", span),
  ];
  if (kinds.length > 1) content.push(labelled("to", kind));
  void askReader(`Share ${name}`, content, "Make a link", async () => {
    const made = await macaroon(href, kind.value, Number(span.value));
    const path = isDirectory ? `${href.replace(/\/+$/, "")}/` : href;
    const link = `${location.origin}${path}?authz=${encodeURIComponent(made.text)}`;
    showLink(name, link, made.seconds, Number(span.value) * 60);
  });
}

function showLink(name: string, link: string, seconds: number, wanted: number): void {
  const input = el("input", "link");
  input.type = "url";
  input.value = link;
  input.readOnly = true;
  const end = new Date(Date.now() + seconds * 1000);
  const shortened = seconds + 60 < wanted ? " The site or your own sign-in does not allow more." : "";
  const copied = el("p", "hint", `Valid until ${end.toLocaleString()}.${shortened}`);
  void askReader(`A link to ${name}`, [labelled("link", input), copied], "Copy", async () => {
    input.select();
    await navigator.clipboard.writeText(link);
  });
  input.select();
}
