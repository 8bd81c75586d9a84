// Searches the page that is made of an OpenAPI document, and follows its index.
//
//   node test/openapi.mjs PAGE_URL WORDS OPERATION_ID [SCREENSHOT.png]
//   node test/openapi.mjs https://127.0.0.2:8446/fts/openapi.html "jobs cancel" cancelJobs
//
// WORDS must find OPERATION_ID, and not everything. Exits with 0 when all holds, 1 with the first thing that does not.
import { chromium } from "playwright-core";

const [url, words, operation, screenshot] = process.argv.slice(2);
if (operation === undefined) {
  console.error("usage: node test/openapi.mjs PAGE_URL WORDS OPERATION_ID [SCREENSHOT.png]");
  process.exit(2);
}

function check(holds, text) {
  if (!holds) throw new Error(text);
  console.log(`ok: ${text}`);
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"],
});
try {
  // The site's own CA is not the browser's; what is tested here is the page.
  const page = await browser.newPage({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 900 } });
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) complaints.push(message.text());
  });
  await page.goto(url);
  const all = await page.locator("main details").count();
  const shown = () => page.locator("main details:visible").count();
  check((await shown()) === all && all > 10, `all ${all} operations are shown at first`);
  await page.keyboard.press("/");
  await page.keyboard.type(words);
  const some = await shown();
  check(some > 0 && some < all, `"${words}" is in ${some} of them`);
  check((await page.locator("#found").textContent()) === `${some} of ${all} operations`, "their number is told");
  check((await page.locator("nav ul ul li:visible").count()) === some, "the index has the same ones");
  await page.locator(`nav a[href="#${operation}"]`).click();
  const named = page.locator(`details#${operation}`);
  check(await named.evaluate((details) => details.open), `${operation} opens from the index`);
  const example = await named.locator("pre").first().textContent();
  check(example.includes(new URL(url).origin), "its example asks this server");
  if (screenshot !== undefined) await page.screenshot({ path: screenshot });
  await page.locator("#words").fill("");
  check((await shown()) === all, "without words all are shown again");
  await page.setViewportSize({ width: 390, height: 800 });
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(wider <= 0, "a phone shows its whole width");
  check(complaints.length === 0, `the browser complains of nothing: ${complaints}`);
} finally {
  await browser.close();
}
