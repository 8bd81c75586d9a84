// Quantities as people read them. Units are decimal, as everywhere in Penstock: 1 kB = 1000 B.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

/** Three significant digits: `1.24`, `12.4`, `124`. */
function short(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(value: number, unit: string): string {
  if (value < 1000) return `${Math.round(value)} ${unit}`;
  let rest = value;
  let prefix = 0;
  while (rest >= 999.5 && prefix + 1 < PREFIXES.length) {
    rest /= 1000;
    prefix += 1;
  }
  return `${short(rest)} ${PREFIXES[prefix]}${unit}`;
}

export const bytes = (value: number): string => scaled(value, "B");
export const rate = (bytesPerSecond: number): string => scaled(bytesPerSecond, "B/s");
export const bits = (bytesPerSecond: number): string => scaled(bytesPerSecond * 8, "b/s");
export const count = (value: number): string => value.toLocaleString("en", { maximumFractionDigits: 0 });

/** `1 file`, `2 files`. */
export const plural = (value: number, noun: string): string =>
  `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** `4.2 s`, `3 min 20 s`, `2 h 05 min`. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600)
    return whole % 60 === 0 ? `${whole / 60} min` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

/** `14:03:09`, in the reader's time zone. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString("en-GB");
}

/** `21 Nov 2026, 14:03:09`, in the reader's time zone; with milliseconds when wanted. */
export function moment(at: number, exact = false): string {
  const shown = new Date(at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
  return exact ? `${shown}.${String(((at % 1000) + 1000) % 1000).padStart(3, "0")}` : shown;
}

/** A storage element without its scheme: `se.example.org`. */
export function host(storage: string): string {
  const at = storage.indexOf("://");
  return at < 0 ? storage : storage.slice(at + 3);
}

/** The host of a file's URL, and the last part of its path; never its query, which may hold secrets. */
export function place(url: string): { host: string; file: string } {
  const rest = host(url).split(/[?#]/, 1)[0] ?? "";
  const slash = rest.indexOf("/");
  const authority = slash < 0 ? rest : rest.slice(0, slash);
  const parts =
    slash < 0
      ? []
      : rest
          .slice(slash)
          .split("/")
          .filter((part) => part !== "");
  return { host: authority.replace(/:\d+$/, ""), file: parts[parts.length - 1] ?? rest };
}

/** A round number that is not below `value` and not far above it, for the top of an axis. */
export function roundUp(value: number): number {
  if (!(value > 0)) return 1;
  const magnitude = 10 ** Math.floor(Math.log10(value));
  return (
    [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].map((step) => step * magnitude).find((step) => step >= value) ??
    value
  );
}
