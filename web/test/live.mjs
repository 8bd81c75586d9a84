// Opens the live page of a running service in a browser and checks that it shows what the service says.
//
//   node test/live.mjs BASE_URL TOKEN [SCREENSHOT.png]
//   node test/live.mjs https://127.0.0.2:8446 "$(cat admin.token)"
//
// Exits with 0 when all holds, 1 with the first thing that does not.
import { chromium } from "playwright-core";

const DEADLINE_MS = 30_000;
const [base, token, screenshot] = process.argv.slice(2);
if (base === undefined || token === undefined) {
  console.error("usage: node test/live.mjs BASE_URL TOKEN [SCREENSHOT.png]");
  process.exit(2);
}

function check(holds, text) {
  if (!holds) throw new Error(text);
  console.log(`ok: ${text}`);
}

/** Asks `probe` until it gives something true; the page and the service move on while we look. */
async function eventually(text, probe) {
  const until = Date.now() + DEADLINE_MS;
  let last;
  while (Date.now() < until) {
    last = await probe();
    if (last.holds) return console.log(`ok: ${text}`);
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error(`not within ${DEADLINE_MS / 1000} s: ${text}\n  last seen: ${JSON.stringify(last)}`);
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
try {
  // The site's own CA is not the browser's; what is tested here is the page.
  const page = await browser.newPage({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 900 } });
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) complaints.push(message.text());
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.origin !== new URL(base).origin)
      complaints.push(`asked somebody else: ${url}`);
  });
  const texts = (selector) => page.locator(selector).allTextContents();
  // From inside the page, because the browser has been told to accept the site's certificate.
  const overview = () =>
    page.evaluate(async (bearer) => {
      const response = await fetch("/api/v1/overview", { headers: { Authorization: `Bearer ${bearer}` } });
      return response.json();
    }, token.trim());

  await page.goto(`${base}/live/#token=not-a-token`);
  await eventually("a token that is not accepted is asked for again", async () => ({
    holds: await page.locator("#token-form").isVisible(),
  }));
  await page.fill("#token", token);
  await page.click("#token-form button");
  await eventually("a token that is typed in shows the page", async () => ({
    holds: await page.locator("#page").isVisible(),
    says: await texts("#connection, #token-why"),
  }));

  await page.goto(`${base}/live/`);
  await page.evaluate(() => sessionStorage.clear());
  await page.goto("about:blank");
  await page.goto(`${base}/live/#token=${encodeURIComponent(token.trim())}`);
  await eventually("the page is live", async () => ({
    holds: (await texts("#connection"))[0] === "live",
    says: await texts("#connection"),
  }));
  check(!page.url().includes("token"), "the token is taken out of the address");

  await eventually("the rate has a unit", async () => {
    const rate = (await texts("#rate-now"))[0] ?? "";
    return { holds: /^[\d.]+ [kMGTP]?B\/s$/.test(rate), rate };
  });
  await eventually("every link of the service is in the table, with its limit", async () => {
    const seen = await overview();
    const rows = await texts(".link-rows .link-row");
    const host = (storage) => storage.replace(/^.*:\/\//, "");
    const shown = (link) =>
      rows.some(
        (row) =>
          row.includes(`${host(link.source)} → ${host(link.destination)}`) && row.includes(`/ ${link.limit}`),
      );
    return { holds: rows.length === seen.links.length && seen.links.every(shown), rows };
  });
  await eventually("the reasons of the waiting files are told", async () => {
    const reasons = (await overview()).waiting.map((group) => group.text);
    const shown = await texts("#waiting li");
    const told =
      reasons.length === 0
        ? shown.includes("No files are queued.")
        : reasons.every((text) => shown.some((item) => item.includes(text)));
    return { holds: told, reasons, shown };
  });
  await eventually("the chart is drawn", async () => ({
    holds: (await page.locator("#chart svg text").count()) > 3,
  }));
  const running = (await overview()).active_transfers[0];
  if (running !== undefined) {
    const { job, transfer } = running;
    await page.fill("#find-words", job);
    await page.keyboard.press("Enter");
    await eventually("a job is explained", async () => ({
      holds: /The job is \w+/.test((await texts("#find-answer"))[0] ?? ""),
      answer: await texts("#find-answer"),
    }));
    check(page.url().endsWith(`#/job/${job}`), "the address names the job");
    await page.fill("#find-words", new URL(running.source).pathname.slice(1));
    await page.selectOption("#find-state", "ACTIVE");
    await page.click("#find-form button");
    await eventually("transfers are found by a part of their address, in a state", async () => ({
      holds: (await texts("#find-answer .state")).some((state) => state === "ACTIVE"),
      answer: await texts("#find-answer"),
    }));
    await page.locator(`#find-answer a[href="#/transfer/${transfer}"]`).focus();
    await page.keyboard.press("Enter");
    const tellsStory = async () => ({
      holds:
        (await texts("#find-answer h3"))[0] === `Transfer ${transfer}` &&
        (await texts(".steps .accepted")).length > 0 &&
        /is being moved/.test((await texts(".steps .present"))[0] ?? ""),
      answer: await texts("#find-answer"),
    });
    await eventually("a transfer's story is told, by keyboard alone", tellsStory);
    const address = page.url();
    await page.goBack();
    await eventually("the browser's own button leads back to what was found", async () => ({
      holds: (await texts("#find-answer h3"))[0] === "Found, newest first",
    }));
    await page.goto("about:blank");
    await page.goto(address);
    await eventually("the address of a story opens it", tellsStory);
    await page.goto("about:blank");
    await page.goto(`${base}/fts3/ftsmon/#/job/${job}`);
    await eventually("the address to which Rucio links opens the job", async () => ({
      holds: page.url() === `${base}/live/#/job/${job}` && /The job is/.test((await texts("#find-answer"))[0] ?? ""),
      url: page.url(),
    }));
    await page.goto(`${base}/live/#/transfer/${transfer}`);
    await eventually("the story is there before its width is looked at", tellsStory);
    await page.emulateMedia({ colorScheme: "dark" });
    const [text, card] = await page.evaluate(() => [
      getComputedStyle(document.querySelector(".step span")).color,
      getComputedStyle(document.querySelector("#find")).backgroundColor,
    ]);
    check(text !== card && card !== "rgb(255, 255, 255)", "a story can be read in the dark");
    await page.emulateMedia({ colorScheme: "light" });
    await page.goto(`${base}/live/#/transfer/999999999`);
    await eventually("a number that nobody has is told so", async () => ({
      holds: /There is no transfer 999999999/.test((await texts("#find-answer"))[0] ?? ""),
    }));
    await page.goto(`${base}/live/#/transfer/${transfer}`);
    await eventually("the story is there again", tellsStory);
  }
  await page.setViewportSize({ width: 400, height: 800 });
  check(
    await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
    "nothing sticks out at 400 pixels",
  );
  await page.setViewportSize({ width: 1280, height: 900 });
  check(complaints.length === 0, `no complaint of the browser ${complaints.join("; ")}`.trim());
  if (screenshot !== undefined) await page.screenshot({ path: screenshot, fullPage: true });
} catch (error) {
  console.error(`not ok: ${error.message}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
