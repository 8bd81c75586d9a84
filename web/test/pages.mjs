// Drives the door's pages in a browser: browse, sign in, upload, resume, rename, delete, download, share.
//
//   node test/pages.mjs BASE_URL DIRECTORY SCENARIO     the token in PAGES_TOKEN, certificates in PAGES_CERT, PAGES_KEY
//
// DIRECTORY holds files to upload: `small.txt` and `large.bin` of 48 MiB. A line `please ACTION` asks whoever
// started it to do something to the server and to answer with a line. Exits with 0 when all holds.
import { chromium } from "playwright-core";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const DEADLINE_MS = 60_000;
const PIECE = 32 * 1024 * 1024;
const [base, directory, scenario] = process.argv.slice(2);
const token = process.env.PAGES_TOKEN ?? "";
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function check(holds, text) {
  if (!holds) throw new Error(text);
  console.log(`ok: ${text}`);
}

async function eventually(text, probe) {
  const until = Date.now() + DEADLINE_MS;
  let last;
  while (Date.now() < until) {
    last = await probe();
    if (last) return last;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`not within ${DEADLINE_MS / 1000} s: ${text}; last seen: ${JSON.stringify(last)}`);
}

async function please(action) {
  console.log(`please ${action}`);
  await answers.next();
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"],
});

const complaints = [];

/** A fresh profile with one page. */
async function visitor(options = {}) {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true,
    viewport: { width: 1200, height: 800 },
    acceptDownloads: true,
    ...options,
  });
  context.setDefaultTimeout(DEADLINE_MS);
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) complaints.push(message.text());
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.origin !== new URL(base).origin)
      complaints.push(`asked somebody else: ${url}`);
    if (token !== "" && request.url().includes(token)) complaints.push("a token in an address");
  });
  return page;
}

async function signedIn(path) {
  const page = await visitor();
  await page.goto(`${base}${path}`);
  await page.fill(".sign-in input", token);
  await page.click(".sign-in button");
  await page.waitForSelector("#tools button");
  return page;
}

const names = (page) => page.locator("td.name").allInnerTexts();
const listed = (page, name) => eventually(`${name} is listed`, async () => (await names(page)).includes(name));
const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");

async function fetched(page, click) {
  const [download] = await Promise.all([page.waitForEvent("download"), click()]);
  return readFileSync(await download.path());
}

async function menu(page, name, choice) {
  await page.locator("tr", { hasText: name }).locator(".dots").click();
  await page.click(`dialog button:text-is("${choice}")`);
}

/** Sends slowly enough to be looked at. */
async function slow(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const speed = { offline: false, latency: 0, downloadThroughput: -1 };
  await session.send("Network.emulateNetworkConditions", { ...speed, uploadThroughput: 12_000_000 });
}

const small = () => readFileSync(join(directory, "small.txt"));
const large = join(directory, "large.bin");

/** Where each PATCH began. */
function watchPieces(page) {
  const offsets = [];
  page.on("request", (request) => {
    if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
  });
  return offsets;
}

async function beginLarge(page) {
  await page.evaluate(() => (document.getElementById("main").dataset.resumableFrom = "1000000"));
  await page.setInputFiles("input[type=file]", large);
}

const scenarios = {
  async files() {
    const page = await visitor();
    await page.goto(`${base}/d/`);
    await page.waitForSelector(".sign-in");
    await page.fill(".sign-in input", "no.such.token");
    await page.click(".sign-in button");
    await page.waitForSelector(".sign-in .bad:not(:empty)");
    check(true, "a token that is not accepted is told");
    await page.fill(".sign-in input", token);
    await page.click(".sign-in button");
    await page.waitForSelector("#tools button");
    check((await names(page)).includes('"><img src=x onerror=alert(1)>.html'), "a hostile name is text");
    check((await page.locator("main img, main script").count()) === 0, "and nothing else");
    check((await names(page)).some((name) => name.includes("⟨U+202E⟩")), "the direction of writing is kept");

    await page.click('button:text-is("New folder")');
    await page.fill("dialog input", "new & odd/");
    await page.click("dialog form button:text-is('Make it')");
    await page.waitForSelector("dialog .bad:not([hidden])");
    await page.fill("dialog input", "new & odd");
    await page.click("dialog form button:text-is('Make it')");
    await listed(page, "new & odd/");
    await page.click("a:has-text('new & odd')");
    await page.waitForSelector(".none");
    check(page.url().endsWith("/d/new%20%26%20odd/"), "a folder opens at its own address");

    await page.setInputFiles("input[type=file]", join(directory, "small.txt"));
    await listed(page, "small.txt");
    await page.evaluate(() => {
      const carried = new DataTransfer();
      for (const [name, text] of [["dropped 1.txt", "one"], ["<b>2.txt", "two"]])
        carried.items.add(new File([text], name));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
    });
    await listed(page, "dropped 1.txt");
    await listed(page, "<b>2.txt");
    await page.setInputFiles("input[type=file]", join(directory, "small.txt"));
    await page.click('button:text-is("replace")');
    await eventually("replaced", async () => (await page.locator('.upload[data-state="done"]').count()) === 4);

    const bytes = await fetched(page, () => page.click("a.file:has-text('small.txt')"));
    check(bytes.equals(small()), "a download by token brings the bytes");
    await menu(page, "dropped 1.txt", "Rename");
    await page.fill("dialog input", "small.txt");
    await page.click("dialog form button:text-is('Rename')");
    await page.waitForSelector("dialog .bad:not([hidden])");
    await page.fill("dialog input", "été #1?.txt");
    await page.click("dialog form button:text-is('Rename')");
    await listed(page, "été #1?.txt");
    await menu(page, "<b>2.txt", "Delete");
    await page.click("dialog form button:text-is('Delete')");
    await eventually("deleted", async () => !(await names(page)).includes("<b>2.txt"));
    await page.locator("tr", { hasText: "small.txt" }).locator("a.quiet").click();
    await page.waitForSelector(".facts");
    check((await page.innerText(".facts")).includes("adler32"), "details tell the checksum");
    await page.setViewportSize({ width: 390, height: 800 });
    await page.goBack();
    await page.waitForSelector(".entries");
    check(
      await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
      "nothing sticks out on a phone",
    );
    check((await page.evaluate(() => JSON.stringify(localStorage))).length <= 40, "no secret outlives the tab");
  },

  async share() {
    const page = await signedIn("/d/");
    await page.click('#tools button:text-is("Share")');
    await page.click("dialog form button:text-is('Make a link')");
    const link = await page.inputValue("dialog .link");
    console.log(`link: ${link}`);
    const guest = await visitor();
    await guest.goto(link);
    await listed(guest, "sub/");
    check((await guest.locator('button:text-is("Upload files")').count()) === 0, "a guest may look only");
    await guest.click("a:has-text('sub')");
    await listed(guest, "f.txt");
    const bytes = await fetched(guest, () => guest.click("a.file:has-text('f.txt')"));
    check(bytes.toString() === "shared", "a guest downloads");
    await guest.click(".crumbs a:text-is('top')");
    await guest.waitForSelector(".refused");
    check(true, "a guest gets no further up");
    const plain = await visitor({ javaScriptEnabled: false });
    await plain.goto(link);
    await plain.click("a:has-text('sub')");
    const again = await fetched(plain, () => plain.click("a.file:has-text('f.txt')"));
    check(again.toString() === "shared", "all of that works without a script");
  },

  async resume() {
    const page = await signedIn("/d/");
    const offsets = watchPieces(page);
    await slow(page);
    await beginLarge(page);
    const status = page.locator(".upload .status").last();
    const share = async () => Number(/(\d+) %/.exec(await status.innerText())?.[1] ?? 0);
    await eventually("the second piece is on its way", async () => (await share()) >= 72);
    await please("kill");
    await eventually("the loss is seen", async () => (await status.innerText()).includes("next try"));
    await please("start");
    await eventually("it is stored", async () => (await status.innerText()).includes("stored"));
    check(offsets.at(-1) >= PIECE, `what was acknowledged is not sent again (${offsets.join(", ")})`);
    await listed(page, "large.bin");
  },

  async reload() {
    const page = await signedIn("/d/");
    await slow(page);
    await beginLarge(page);
    const status = page.locator(".upload .status").last();
    await eventually("a part is sent", async () => Number(/(\d+) %/.exec(await status.innerText())?.[1] ?? 0) >= 20);
    await page.click('.upload button:text-is("pause")');
    await eventually("it is paused", async () => (await status.innerText()).includes("paused"));
    await page.reload();
    await page.waitForSelector(".unfinished");
    const offsets = watchPieces(page);
    await page.setInputFiles("input[type=file]", large);
    await eventually("it is stored", async () => (await status.innerText()).includes("stored"));
    check(offsets[0] > 0, `it goes on where it stopped, after a reload (${offsets.join(", ")})`);
    const bytes = await fetched(page, () => page.click("a.file:has-text('large.bin')"));
    check(sha(bytes) === sha(readFileSync(large)), "the bytes are right");
  },

  async certificate() {
    const shown = { origin: base, certPath: process.env.PAGES_CERT, keyPath: process.env.PAGES_KEY };
    const page = await visitor({ clientCertificates: [shown] });
    await page.goto(`${base}/d/`);
    await listed(page, "sub/");
    check((await page.innerText("#user")).includes("CN=Alice Lab"), "a certificate signs in");
    await page.setInputFiles("input[type=file]", join(directory, "small.txt"));
    await listed(page, "small.txt");
    await page.click("a:has-text('sub')");
    const bytes = await fetched(page, () => page.click("a.file:has-text('f.txt')"));
    check(bytes.toString() === "shared", "a certificate downloads");
  },
};

try {
  await scenarios[scenario]();
  check(complaints.length === 0, `no complaint of the browser ${complaints.join("; ")}`.trim());
} catch (error) {
  console.log(`not ok: ${error.message}`);
  process.exitCode = 1;
} finally {
  await browser.close();
  process.exit();
}
