// Bytes on their way to the door. Small files go in one PUT; large ones in pieces that survive a lost connection
// (IETF draft "Resumable Uploads for HTTP"), so that only what did not arrive is sent again.

import { Refusal, ask, credentials, withAuthorisation } from "./door.ts";

/** Bytes of one piece: a lost connection costs at most what the door had not yet written of it. */
const PIECE_BYTES = 32 * 1024 * 1024;

/** The connection was lost, or there never was one. */
export class Lost extends Error {}

/** Sends a body and tells how far it has come; `fetch` cannot. */
export function send(
  method: string,
  href: string,
  headers: Record<string, string>,
  body: Blob,
  signal: AbortSignal,
  onSent: (bytes: number) => void,
): Promise<XMLHttpRequest> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open(method, withAuthorisation(href));
    for (const [name, value] of Object.entries({ ...credentials(), ...headers }))
      request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => onSent(event.loaded));
    request.addEventListener("load", () =>
      request.status >= 400 ? failed(new Refusal(request.status, request.responseText)) : done(request),
    );
    request.addEventListener("error", () => failed(new Lost("the connection was lost")));
    request.addEventListener("abort", () => failed(new DOMException("stopped", "AbortError")));
    const stop = () => request.abort();
    signal.addEventListener("abort", stop);
    request.addEventListener("loadend", () => signal.removeEventListener("abort", stop));
    if (signal.aborted) failed(new DOMException("stopped", "AbortError"));
    else request.send(body);
  });
}

/** What is kept of an unfinished upload, so that the page finds it again after it was loaded anew. */
export interface Unfinished {
  upload: string;
  target: string;
  name: string;
  size: number;
  modified: number;
}

const KEY = "penstock.unfinished";
const KEPT_MAX = 50;

export function unfinished(): Unfinished[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? (kept as Unfinished[]) : [];
  } catch {
    return [];
  }
}

function keep(list: Unfinished[]): void {
  localStorage.setItem(KEY, JSON.stringify(list.slice(-KEPT_MAX)));
}

export function remember(upload: Unfinished): void {
  keep([...unfinished().filter((known) => known.upload !== upload.upload), upload]);
}

export function forget(upload: string): void {
  keep(unfinished().filter((known) => known.upload !== upload));
}

/** The upload that this file was begun with. */
export function findUnfinished(target: string, file: File): string | null {
  const same = (known: Unfinished) =>
    known.target === target && known.size === file.size && known.modified === file.lastModified;
  return unfinished().find(same)?.upload ?? null;
}

/** How far an upload has come; `null` when the door does not know it any more. */
export async function offsetOf(
  upload: string,
  signal: AbortSignal,
): Promise<{ offset: number; complete: boolean } | null> {
  try {
    const response = await ask("HEAD", upload, { signal });
    return {
      offset: Number(response.headers.get("Upload-Offset") ?? "0"),
      complete: response.headers.get("Upload-Complete") === "?1",
    };
  } catch (error) {
    if (error instanceof Refusal && (error.status === 404 || error.status === 410)) return null;
    throw error instanceof TypeError ? new Lost("the connection was lost") : error;
  }
}

/** Begins an upload; gives back where it goes on. */
export async function begin(
  target: string,
  file: File,
  conditions: Record<string, string>,
  signal: AbortSignal,
): Promise<string> {
  const headers = { "Upload-Complete": "?0", "Upload-Length": String(file.size), ...conditions };
  const begun = await send("PUT", target, headers, new Blob([]), signal, () => {});
  const place = begun.getResponseHeader("Location");
  if (place === null) throw new Refusal(begun.status, "the server did not start an upload");
  const upload = new URL(place, location.origin).pathname;
  remember({ upload, target, name: file.name, size: file.size, modified: file.lastModified });
  return upload;
}

/** Sends what is missing from `offset` on, piece by piece. */
export async function goOn(
  upload: string,
  file: File,
  offset: number,
  signal: AbortSignal,
  onSent: (bytes: number) => void,
): Promise<void> {
  let at = offset;
  for (;;) {
    const end = Math.min(at + PIECE_BYTES, file.size);
    const last = end === file.size;
    const from = at;
    const headers = {
      "Content-Type": "application/partial-upload",
      "Upload-Offset": String(at),
      "Upload-Complete": last ? "?1" : "?0",
    };
    await send("PATCH", upload, headers, file.slice(at, end), signal, (bytes) => onSent(from + bytes));
    at = end;
    onSent(at);
    if (last) return;
  }
}
