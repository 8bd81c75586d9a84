// The colour of each link. It is the link's own: it follows from its name, and is remembered in this browser, so that it is
// the same tomorrow, on each page and at every rank.

/** Colours of the style sheet, `series-0` …; the one after them is for all that have none of their own. */
export const COLOURS = 8;
export const OTHERS = COLOURS;
const KEY = "penstock.colours";
const REMEMBERED_MAX = 200;

let known: Map<string, number> | null = null;

function remembered(): Map<string, number> {
  if (known !== null) return known;
  known = new Map();
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    if (Array.isArray(stored))
      for (const pair of stored) {
        const [name, colour] = pair as [unknown, unknown];
        if (typeof name === "string" && typeof colour === "number" && colour >= 0 && colour < COLOURS)
          known.set(name, colour);
      }
  } catch {
    // Nothing is remembered; names alone decide.
  }
  return known;
}

function hash(text: string): number {
  let sum = 2166136261;
  for (let n = 0; n < text.length; n += 1) sum = Math.imul(sum ^ text.charCodeAt(n), 16777619);
  return (sum >>> 0) % COLOURS;
}

/** The link's colour. One that is met for the first time takes a free one, from that of its name on. */
export function colourOf(link: string): number {
  const all = remembered();
  const own = all.get(link);
  if (own !== undefined) return own;
  const used = new Set(all.values());
  const first = hash(link);
  const wanted = Array.from({ length: COLOURS }, (_, n) => (first + n) % COLOURS);
  const colour = wanted.find((one) => !used.has(one)) ?? first;
  if (all.size >= REMEMBERED_MAX) all.clear();
  all.set(link, colour);
  try {
    localStorage.setItem(KEY, JSON.stringify([...all]));
  } catch {
    // It stays the same until the page is left.
  }
  return colour;
}

/** Of several links, largest first, those that are shown in a colour of their own: no two have the same. */
export function distinct(links: string[], most: number): string[] {
  const taken = new Set<number>();
  return links.filter((link) => {
    if (taken.size >= most || taken.has(colourOf(link))) return false;
    taken.add(colourOf(link));
    return true;
  });
}
