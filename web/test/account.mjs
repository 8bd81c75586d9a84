// Opens a page of `penstock account --html` in a browser and checks that it stands alone: in light and dark, wide and narrow.
//
//   node test/account.mjs PAGE.html [DIRECTORY FOR SCREENSHOTS]
//
// Exits with 0 when all holds, 1 with the first thing that does not.
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [file, shots] = process.argv.slice(2);
if (file === undefined) {
  console.error("usage: node test/account.mjs PAGE.html [DIRECTORY FOR SCREENSHOTS]");
  process.exit(2);
}
const address = pathToFileURL(file).href;

function check(holds, text) {
  if (!holds) throw new Error(text);
  console.log(`ok: ${text}`);
}

/** Contrast of two colours as the browser tells them, by WCAG 2.2. */
function contrast(one, other) {
  const light = (colour) => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => Number(part) / 255);
    const [red, green, blue] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
});
try {
  for (const scheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: 844 } });
      const page = await context.newPage();
      const complaints = [];
      page.on("pageerror", (error) => complaints.push(error.message));
      page.on("console", (message) => complaints.push(message.text()));
      page.on("dialog", (dialog) => complaints.push(`dialog: ${dialog.message()}`));
      page.on("request", (request) => {
        if (request.url() !== address) complaints.push(`asked for ${request.url()}`);
      });
      await page.goto(address);
      const seen = await page.evaluate(() => {
        const style = (element) => getComputedStyle(element);
        const rows = [...document.querySelectorAll("tr")];
        return {
          figures: document.querySelectorAll("figure svg, .part table").length,
          counts: document.querySelectorAll(".counts b").length / 6,
          scripts: document.querySelectorAll("script, img, link, iframe, object").length,
          width: document.documentElement.scrollWidth,
          uneven: rows.filter((row) => row.children.length !== row.parentElement.children[0].children.length).length,
          smallest: Math.min(
            ...[...document.querySelectorAll("svg")].map((svg) => {
              const text = svg.querySelector("text");
              return (parseFloat(style(text).fontSize) * svg.getBoundingClientRect().width) / svg.viewBox.baseVal.width;
            }),
          ),
          text: [style(document.body).color, style(document.querySelector(".part")).backgroundColor],
          muted: [style(document.querySelector(".counts")).color, style(document.querySelector(".part")).backgroundColor],
        };
      });
      const where = `${scheme}, ${width} wide`;
      check(complaints.length === 0, `${where}: nothing is fetched, nothing runs ${complaints.join("; ")}`);
      check(seen.figures >= 8 && seen.scripts === 0, `${where}: ${seen.figures} figures, no scripts`);
      check(seen.counts >= seen.figures, `${where}: each figure says what it counts`);
      check(seen.width <= width, `${where}: the page is not wider than the window (${seen.width})`);
      check(seen.uneven === 0, `${where}: rows have as many cells as their table's head`);
      check(seen.smallest >= 9.5, `${where}: text in plots can be read (${seen.smallest.toFixed(1)} px)`);
      check(contrast(...seen.text) >= 7, `${where}: text stands out (${contrast(...seen.text).toFixed(1)})`);
      check(contrast(...seen.muted) >= 4.5, `${where}: notes stand out (${contrast(...seen.muted).toFixed(1)})`);
      if (shots) await page.screenshot({ path: `${shots}/${scheme}-${width}.png`, fullPage: true });
      await context.close();
    }
  }
} finally {
  await browser.close();
}
