// The reader's token: from a login link, from `#token=…` in the address (taken out of it at once, because addresses are copied,
// logged and shown) or typed in; kept for this tab only.

const KEY = "penstock.token";

/** Takes the token out of the address bar. What begins with `#/` is a place in the page and stays; `#job=…` means one. */
export function readAddress(): void {
  if (location.hash.startsWith("#/")) return;
  const wanted = new URLSearchParams(location.hash.slice(1));
  const token = wanted.get("token");
  if (token !== null && token !== "") keepToken(token);
  const job = wanted.get("job");
  const place = job === null ? "" : `#/job/${encodeURIComponent(job)}`;
  if (location.hash !== "") history.replaceState(null, "", location.pathname + location.search + place);
}

export function keepToken(token: string): void {
  sessionStorage.setItem(KEY, token.trim().replace(/^Bearer\s+/i, ""));
}

export function forgetToken(): void {
  sessionStorage.removeItem(KEY);
}

export function token(): string | null {
  return sessionStorage.getItem(KEY);
}
