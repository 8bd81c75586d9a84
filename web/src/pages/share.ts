// Links that let others look at, fetch, or drop files, for a time and below one path only.

import { el } from "../dom.ts";
import { ask as askReader, labelled, notify } from "./dialogs.ts";
import { makeShare, revokeShare, sharesOf, type MadeShare, type Share, type ShareAccess } from "./shares.ts";

const SPANS: [string, number][] = [
  ["an hour", 3600],
  ["12 hours", 12 * 3600],
  ["a day", 86_400],
  ["a week", 7 * 86_400],
  ["30 days", 30 * 86_400],
];

/** No span that the site would shorten, and its maximum as the last one. */
function spans(max: number): [string, string][] {
  const shorter = SPANS.filter(([, seconds]) => seconds <= max);
  const longest = shorter.at(-1)?.[1] ?? 0;
  if (longest < max) shorter.push([`${Math.round((max / 3600) * 10) / 10} hours, the maximum of this site`, max]);
  return shorter.map(([text, seconds]) => [text, String(seconds)]);
}

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

/** Asks for how long and for what, and shows the link; lists the shares that there are, to be revoked. */
export function share(href: string, name: string, isDirectory: boolean, mayUpload: boolean): void {
  askAndShare(href, name, isDirectory, mayUpload).catch((why: unknown) =>
    notify(why instanceof Error ? why.message : "the shares cannot be read", true),
  );
}

async function askAndShare(href: string, name: string, isDirectory: boolean, mayUpload: boolean): Promise<void> {
  const known = await sharesOf(href);
  const max = known.lifetime_max_seconds ?? 0;
  const offered = spans(max);
  const span = select(offered, offered.find(([, seconds]) => seconds === "43200")?.[1] ?? offered.at(-1)?.[1] ?? "");
  const kinds: [string, ShareAccess][] = [["view and download", "read"]];
  if (isDirectory && mayUpload) kinds.push(["list names and upload new files", "upload"]);
  const kind = select(kinds, "read");
  const content: Node[] = [
    el("p", "hint", "Anybody who has the link can use it until it expires or is revoked. It gives no access above ", el("bdi", "", name), "."),
    labelled("for", span),
  ];
  if (kinds.length > 1) content.push(labelled("to", kind));
  const valid = known.shares.filter((one) => one.state === "valid");
  if (valid.length > 0) content.push(el("p", "hint", "Your links to it:"), el("ul", "plain", ...valid.map(shareRow)));
  await askReader(`Share ${name}`, content, "Make a link", async () => {
    const made = await makeShare(href, kind.value as ShareAccess, Number(span.value));
    showLink(name, made);
  });
}

/** A share with a way to end it. */
function shareRow(one: Share): HTMLElement {
  const end = new Date(one.expires_at).toLocaleString();
  const used = one.last_used_at === null ? "not used" : `last used ${new Date(one.last_used_at).toLocaleString()}`;
  const button = el("button", "quiet", "revoke");
  button.type = "button";
  const row = el("li", "", el("span", "", `${one.access}, until ${end}, ${used} `), button);
  button.addEventListener("click", () => {
    button.disabled = true;
    revokeShare(one.id)
      .then(() => row.replaceChildren("revoked"))
      .catch((why: unknown) => {
        button.disabled = false;
        button.textContent = why instanceof Error ? `${why.message}: try again` : "try again";
      });
  });
  return row;
}

function showLink(name: string, made: MadeShare): void {
  const link = `${location.origin}${made.link}`;
  const input = el("input", "link");
  input.type = "url";
  input.value = link;
  input.readOnly = true;
  const end = new Date(made.expires_at).toLocaleString();
  const shortened = made.shortened_by === null ? "" : " The site or your own sign-in does not allow more.";
  const copied = el("p", "hint", `Valid until ${end}.${shortened}`);
  void askReader(`A link to ${name}`, [labelled("link", input), copied], "Copy", async () => {
    input.select();
    await navigator.clipboard.writeText(link);
  });
  input.select();
}
