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
  await eventually("the reasons of the waiting files are told", async () => {
    const reasons = (await overview()).waiting.map((group) => group.text);
    const shown = await texts("#waiting li");
    const told =
      reasons.length === 0
        ? shown.includes("No files are queued.")
        : reasons.every((text) => shown.some((item) => item.includes(text)));
    return { holds: told, reasons, shown };
  });
  await eventually("the chart is drawn, and says to a screen reader what it shows", async () => {
    const label = await page.locator("#chart [role=img]").first().getAttribute("aria-label");
    const painted = await page.evaluate(() => {
      const canvas = document.querySelector("#chart canvas");
      if (canvas === null) return 0;
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return pixels.filter((value, n) => n % 4 === 3 && value > 0).length;
    });
    return { holds: /^Rate from .*latest [\d.]+ [kMGTP]?B\/s/.test(label ?? "") && painted > 500, label, painted };
  });
  await eventually("the health strip tells of certificates, pools, bans and drains", async () => {
    const chips = await texts(".chip");
    const wanted = [/ready/, /expires in/, /pool/, /ban/, /drained/];
    return { holds: wanted.every((word) => chips.some((chip) => word.test(chip))), chips };
  });
  const ranges = { 900: "15 min", 3600: "1 h", 86400: "24 h", 3456000: "40 d" };
  for (const [seconds, text] of Object.entries(ranges)) {
    await page.locator(`[data-seconds="${seconds}"]`).click();
    await eventually(`the curve of the last ${text} is shown, and the address names it`, async () => {
      const title = (await texts("#chart-title"))[0];
      const note = await page.locator("#chart-title").locator("xpath=ancestor::section").textContent();
      return { holds: title === `Rate over the last ${text}` && page.url().endsWith(`range=${seconds}`) && /moved in this time/.test(note ?? ""), title };
    });
  }
  const step = await page.evaluate(async (bearer) => {
    const asked = await fetch("/live/api/series?seconds=3456000", { headers: { Authorization: `Bearer ${bearer}` } });
    const series = await asked.json();
    return [series.step_seconds, series.total.length];
  }, token.trim());
  check(step[0] === 7200 && step[1] <= 720, `forty days come in a bounded number of steps: ${step}`);
  await page.locator('[data-seconds="900"]').click();
  const box = await page.locator("#chart .u-over").first().boundingBox();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.9, box.y + 60, { steps: 5 });
  await page.mouse.up();
  await page.getByRole("button", { name: "what differed here?" }).click();
  await eventually("what was dragged over is compared with the rest", async () => {
    const told = await texts(".difference li");
    return { holds: told.some((line) => /drop/.test(line)), told };
  });
  await page.getByRole("button", { name: "zoom to this" }).click();
  await eventually("a part of the curve is zoomed to", async () => ({
    holds: /until=\d+/.test(page.url()) && / to /.test((await texts("#chart-title"))[0] ?? ""),
    url: page.url(),
  }));
  await page.goto(`${base}/live/#/links`);
  await eventually("every link of the service is in the table, with its limit", async () => {
    const seen = await overview();
    const rows = await texts(".link-rows .link-row");
    const short = (storage) => storage.replace(/^https:\/\//, "");
    const shown = (link) =>
      rows.some(
        (row) =>
          row.includes(`${short(link.source)} → ${short(link.destination)}`) && row.includes(String(link.limit)),
      );
    return { holds: rows.length === seen.links.length && seen.links.every(shown), rows };
  });
  await page.locator("th.queued .sort").focus();
  await page.keyboard.press("Enter");
  await eventually("links are sorted by keyboard, those with most waiting first", async () => {
    const seen = await overview();
    const most = Math.max(...seen.links.map((link) => link.queued));
    const first = await page.locator(".link-rows .link-row").first().locator("td").nth(3).textContent();
    const sort = await page.locator("th.queued").getAttribute("aria-sort");
    return { holds: sort === "descending" && first === String(most), first, most };
  });
  check((await page.locator(".matrix td a").count()) > 0, "the matrix has the links of the service");
  await page.fill("#link-filter", "no such link");
  await eventually("links can be filtered", async () => ({ holds: (await page.locator(".link-rows .link-row").count()) === 0 }));
  await page.goto(`${base}/live/#/storage`);
  await eventually("each pool is shown with its condition and movers", async () => {
    const rows = await texts("table tbody tr");
    return { holds: rows.length > 0 && rows.every((row) => /sound/.test(row) && /\d+ \/ \d+/.test(row)), rows };
  });
  await page.goto(`${base}/live/#/jobs`);
  await eventually("jobs are listed, and what each VO has", async () => {
    const rows = await texts(".jobs tbody tr");
    return { holds: rows.length > 0 && (await page.locator("table").count()) >= 3, rows };
  });
  await page.goto(`${base}/live/#/configuration`);
  await eventually("an administrator sees who changed what", async () => {
    const rows = await texts("#audit tbody tr");
    return { holds: rows.some((row) => /link/.test(row)), rows };
  });
  await page.goto(`${base}/live/#/incidents`);
  await eventually("incidents are counted", async () => {
    const told = await texts("main .card p");
    return { holds: told.some((text) => /\d+ incidents?, \d+ open/.test(text)), told };
  });
  const running = (await overview()).active_transfers[0];
  if (running !== undefined) {
    const { job, transfer } = running;
    await page.goto(`${base}/live/#/jobs`);
    await page.fill("#find-words", job);
    await page.keyboard.press("Enter");
    await eventually("a job is explained", async () => ({
      holds: /The job is \w+/.test((await texts("#find-answer"))[0] ?? ""),
      answer: await texts("#find-answer"),
    }));
    check(page.url().endsWith(`#/job/${job}`), "the address names the job");
    await page.goto(`${base}/live/#/find`);
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
        (await texts("#find-answer .page-title"))[0] === `Transfer ${transfer}` &&
        (await texts(".steps .accepted")).length > 0 &&
        (await texts(".waterfall li")).some((row) => /queue/.test(row)) &&
        /is being moved/.test((await texts(".steps .present"))[0] ?? ""),
      answer: await texts("#find-answer"),
    });
    await eventually("a transfer's story is told, by keyboard alone", tellsStory);
    const address = page.url();
    await page.goBack();
    await eventually("the browser's own button leads back to what was found", async () => ({
      holds: (await texts("#find-answer .page-title"))[0] === "Found, newest first",
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
      getComputedStyle(document.querySelector(".card")).backgroundColor,
    ]);
    check(text !== card && card !== "rgb(255, 255, 255)", "a story can be read in the dark");
    await page.emulateMedia({ colorScheme: "light" });
    await page.goto(`${base}/live/#/transfer/999999999`);
    await eventually("a number that nobody has is told so", async () => ({
      holds: /There is no transfer 999999999/.test((await texts("#find-answer"))[0] ?? ""),
    }));
    await page.goto(`${base}/live/#/transfer/${transfer}`);
    await eventually("the story is there again", tellsStory);
    // As after a click on a link: the heading is announced, and what changes is shown all the same.
    check(await page.evaluate(() => document.activeElement?.className === "page-title"), "a new page announces its heading");
    await page.evaluate(() => document.querySelector(".steps").append("as it was"));
    await eventually("a page that announced its heading goes on", async () => ({
      holds: !((await texts(".steps"))[0] ?? "as it was").includes("as it was"),
    }));
    check(await page.evaluate(() => document.activeElement?.className === "page-title"), "the heading keeps the focus");

    const made = (body) =>
      page.evaluate(async ([bearer, wanted]) => {
        const headers = { Authorization: `Bearer ${bearer}`, "Content-Type": "application/json" };
        const asked = { method: "POST", headers, body: JSON.stringify(wanted) };
        return (await (await fetch("/api/v1/access-links", asked)).json()).path;
      }, [token.trim(), body]);
    const [login, view] = [await made({ kind: "login" }), await made({ kind: "view", opens: `job/${job}` })];
    await page.evaluate(() => sessionStorage.clear());
    await page.goto("about:blank");
    await page.goto(`${base}/live/`);
    await eventually("without a token one is asked for", async () => ({ holds: await page.locator("#token-form").isVisible() }));
    // The page is loaded anew to follow it.
    const loadedAnew = page.waitForEvent("load");
    await page.goto(`${base}${login}`);
    await loadedAnew;
    await eventually("a login link that is pasted into the open tab signs in", async () => ({
      holds: (await texts("#connection"))[0] === "live" && !page.url().includes("login"),
      says: await texts("#connection, #token-why"),
    }));
    await page.goto("about:blank");
    await page.goto(`${base}${login}`);
    await eventually("a login link opens once", async () => ({
      holds: /used/.test((await texts("#token-why"))[0] ?? ""),
      says: await texts("#token-why"),
    }));
    await page.goto("about:blank");
    await page.goto(`${base}${view}`);
    await eventually("a view link shows the job, and its secret leaves the address", async () => ({
      holds: (await texts(".shared-view h2"))[0] === `Job ${job}` && !page.url().includes(view.split("=")[1]),
      says: await texts(".shared-view"),
    }));
    await page.goto("about:blank");
    await page.goto(`${base}/live/#token=${encodeURIComponent(token.trim())}`);
    await eventually("the page is live again", async () => ({ holds: (await texts("#connection"))[0] === "live" }));
  }
  await page.setViewportSize({ width: 400, height: 800 });
  for (const name of ["", "links", "jobs", "storage", "incidents", "configuration"]) {
    await page.goto(`${base}/live/#/${name}`);
    await eventually(`nothing sticks out at 400 pixels: ${name || "overview"}`, async () => ({
      holds:
        (await page.locator("main .card").count()) > 0 &&
        (await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)),
    }));
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  check(complaints.length === 0, `no complaint of the browser ${complaints.join("; ")}`.trim());
  if (screenshot !== undefined) await page.screenshot({ path: screenshot, fullPage: true });
} catch (error) {
  console.error(`not ok: ${error.message}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
