// Makes a trace and a HAR of a page that has secrets everywhere.
// Arguments: Playwright's package, the browser's program, the folder for both, the secrets as JSON.
const [pkg, executablePath, out, secrets] = process.argv.slice(2);
const {chromium} = require(pkg);
const http = require('http'), path = require('path');
const s = JSON.parse(secrets);
const js = v => JSON.stringify(v).replace(/</g, '\\u003c');

const page = `<!doctype html><title>Shop</title>
<script>const conf = {key: ${js(s.page)}}; console.log('key ' + conf.key);</script>
<form id=f><input id=user><input id=pw type=password><button type=button id=go>Go</button></form><p id=out></p>
<script>go.onclick = async () => {
  await fetch('/login?access_token=' + ${js(s.query)} + '&page=2', {method: 'POST',
    headers: {'Content-Type': 'application/json', Authorization: 'Bearer ' + ${js(s.bearer)}, 'X-Api-Key': ${js(s.key)}},
    body: JSON.stringify({user: user.value, password: pw.value, client_secret: ${js(s.body)}})});
  await fetch('/form', {method: 'POST', body: new URLSearchParams({user: 'u', password: pw.value})});
  const data = new FormData(); data.append('password', pw.value); data.append('user', 'u');
  await fetch('/multipart', {method: 'POST', body: data});
  console.log('cookie ' + document.cookie, btoa(unescape(encodeURIComponent(pw.value))), encodeURIComponent(pw.value));
  document.body.append(pw.value);
  out.textContent = 'Hello ' + user.value;
}</script>`;

(async () => {
  const server = http.createServer((q, r) => q.on('data', () => {}).on('end', () => {
    if (q.method === 'POST') {
      r.setHeader('Set-Cookie', 'session=' + s.session + '; Path=/; HttpOnly');
      r.setHeader('Content-Type', 'application/json');
      return r.end(JSON.stringify({token: s.body, name: 'Ada'}));
    }
    r.setHeader('Content-Type', 'text/html; charset=utf-8');
    r.end(page);
  }));
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  const url = `http://ada:${encodeURIComponent(s.basic)}@127.0.0.1:${server.address().port}/`;
  const browser = await chromium.launch({executablePath, args: ['--disable-gpu']});
  const context = await browser.newContext({viewport: {width: 800, height: 600}, recordHar: {path: path.join(out, 'network.har'), content: 'embed'}});
  await context.addCookies([{name: 'sid', value: s.cookie, domain: '127.0.0.1', path: '/'}]);
  await context.tracing.start({screenshots: true, snapshots: true});
  const p = await context.newPage();
  await p.goto(url);
  await p.goto(url.replace(/\/\/.*@/, '//')); // a page whose address has a password cannot ask for relative ones
  await p.fill('#user', 'Ada');
  await p.fill('#pw', s.typed);
  await p.click('#go');
  await p.locator('#out').filter({hasText: 'Hello'}).waitFor({timeout: 60000});
  await context.tracing.stop({path: path.join(out, 'trace.zip')});
  await context.close();
  await browser.close();
  server.close();
})().catch(e => { console.error(e); process.exit(1); });
