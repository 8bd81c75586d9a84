// The reader's token: from `#token=…` in the address (taken out of it at once, because addresses are copied,
// logged and shown) or typed in; kept for this tab only.

const KEY = "penstock.token";

export interface Arrival {
  /** A job to explain, from `#job=…`. */
  job: string | null;
}

/** Takes token and job out of the address bar. */
export function readAddress(): Arrival {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const token = wanted.get("token");
  if (token !== null && token !== "") keepToken(token);
  if (location.hash !== "") history.replaceState(null, "", location.pathname + location.search);
  return { job: wanted.get("job") };
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
