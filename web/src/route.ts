// Where the reader is: `#/links?sort=queued`. The address holds all that is needed to see the same page again, so that it
// can be sent to others and the browser's own buttons lead back.

export interface Route {
  /** `links`, `job`, … */
  page: string;
  /** What comes after it: a job's id, a transfer's number. */
  name: string;
  query: URLSearchParams;
}

export function route(): Route {
  const [path = "", query = ""] = location.hash.slice(1).split("?", 2);
  const [, page = "", ...rest] = path.split("/");
  return { page: page === "" ? "overview" : page, name: decoded(rest.join("/")), query: new URLSearchParams(query) };
}

/** The address of a page. */
export function address(page: string, name = "", query: Record<string, string> = {}): string {
  const asked = new URLSearchParams(query).toString();
  const place = page === "overview" && name === "" ? "" : page;
  return `#/${place}${name === "" ? "" : `/${encodeURIComponent(name)}`}${asked === "" ? "" : `?${asked}`}`;
}

/** Changes a part of the query without a new entry in the browser's history. */
export function replaceQuery(changes: Record<string, string | null>): void {
  const { page, name, query } = route();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) query.delete(key);
    else query.set(key, value);
  }
  history.replaceState(null, "", address(page, name, Object.fromEntries(query)));
}

/** A part of an address that is no good encoding stands for itself. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
