// Shares as the door keeps them: made, listed and revoked at `/.penstock/shares`.

import { ask } from "./door.ts";

const SHARES = "/.penstock/shares";

/** What a share lets others do. */
export type ShareAccess = "read" | "upload" | "list";

export interface Share {
  id: string;
  user: string;
  path: string;
  access: ShareAccess;
  /** RFC 3339, in UTC. */
  expires_at: string;
  last_used_at: string | null;
  state: "valid" | "used" | "expired" | "revoked";
}

export interface MadeShare extends Share {
  /** The part of the URL behind host and port. */
  link: string;
  lifetime_max_seconds: number;
  /** Why it ends sooner than was asked for. */
  shortened_by: "site" | "credential" | null;
}

export interface ShareList {
  shares: Share[];
  /** How long the site lets a share live; null: it makes none. */
  lifetime_max_seconds: number | null;
}

/** The path that an encoded one means. */
function decoded(href: string): string {
  const path = decodeURIComponent(href).replace(/\/+$/, "");
  return path === "" ? "/" : path;
}

/** The reader's shares of a path. */
export async function sharesOf(href: string): Promise<ShareList> {
  const query = new URLSearchParams({ path: decoded(href) });
  return (await (await ask("GET", `${SHARES}?${query}`)).json()) as ShareList;
}

export async function makeShare(href: string, access: ShareAccess, seconds: number): Promise<MadeShare> {
  const body = JSON.stringify({ path: decoded(href), access, lifetime_seconds: seconds });
  const headers = { "Content-Type": "application/json" };
  return (await (await ask("POST", SHARES, { headers, body })).json()) as MadeShare;
}

export async function revokeShare(id: string): Promise<void> {
  await ask("DELETE", `${SHARES}/${id}`);
}
