// Opens a trace in the viewer with a real browser and tells what it saw, as JSON.
// Arguments: Playwright's package, the browser's program, the viewer's
// address, what each snapshot has to show, a picture's file, what the last one has to show.
const [pkg, executablePath, url, text, picture, last] = process.argv.slice(2);
const {chromium} = require(pkg);

(async () => {
  const browser = await chromium.launch({executablePath, args: ['--disable-gpu', '--ignore-certificate-errors']});
  try {
    const context = await browser.newContext({ignoreHTTPSErrors: true, viewport: {width: 1440, height: 900}});
    const seen = {errors: [], pageErrors: [], requests: [], actions: [], snapshots: [], dialogs: 0};
    context.on('request', r => seen.requests.push(r.url()));
    const page = await context.newPage();
    page.on('dialog', d => { seen.dialogs++; d.dismiss(); });
    page.on('console', m => { if (m.type() === 'error') seen.errors.push(m.text()); });
    page.on('pageerror', e => seen.pageErrors.push(String(e)));
    await page.goto(url);
    const actions = page.locator('.action-title');
    await actions.first().waitFor({timeout: 20000});
    seen.actions = (await actions.allTextContents()).map(t => t.trim());
    for (const i of seen.actions.keys()) {
      await actions.nth(i).click();
      for (const tab of ['Before', 'After']) {
        await page.getByRole('tab', {name: tab, exact: true}).click();
        const frame = page.frameLocator('iframe.snapshot-visible');
        try {
          if (text) await frame.getByText(text).first().waitFor({timeout: 5000});
          if (last && i === seen.actions.length - 1 && tab === 'After') await frame.getByText(last).first().waitFor({timeout: 20000});
          seen.snapshots.push({action: i, tab, html: await frame.locator('html').evaluate(e => e.outerHTML)});
        } catch (e) { seen.snapshots.push({action: i, tab, error: String(e)}); }
      }
    }
    seen.title = await page.title();
    seen.frames = page.frames().map(f => f.url());
    seen.scopes = await page.evaluate(async () => (await navigator.serviceWorker.getRegistrations()).map(r => r.scope));
    seen.cookie = await page.evaluate(() => document.cookie);
    if (picture) await page.screenshot({path: picture});
    process.stdout.write(JSON.stringify(seen));
  } finally {
    await browser.close();
  }
})().catch(e => { console.error(e); process.exit(1); });
