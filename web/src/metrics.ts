// Reads the text of `/metrics` (Prometheus exposition format).

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

export function readMetrics(text: string): Sample[] {
  return text.split("\n").flatMap((line) => {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (found === null) return [];
    const labels: Record<string, string> = {};
    for (const [, name = "", value = ""] of (found[2] ?? "").matchAll(LABEL))
      labels[name] = value.replace(/\\(.)/g, (_, escaped: string) => (escaped === "n" ? "\n" : escaped));
    return [{ name: found[1] ?? "", labels, value: Number(found[3]) }];
  });
}

/** The value of the sample with these labels; `undefined`: there is none. */
export function valueOf(samples: Sample[], name: string, labels: Record<string, string> = {}): number | undefined {
  const wanted = Object.entries(labels);
  return samples.find((one) => one.name === name && wanted.every(([key, value]) => one.labels[key] === value))?.value;
}

/** The values of one label of a metric, in order. */
export function labelsOf(samples: Sample[], name: string, label: string): string[] {
  const found = samples.filter((one) => one.name === name).map((one) => one.labels[label] ?? "");
  return [...new Set(found)].sort();
}
