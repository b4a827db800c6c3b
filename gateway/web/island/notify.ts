// Tells a person of work that needs them: by a message on the page, or by the browser if no page is looked at. It is off until the person
// switches it on in the settings. One tab of the browser listens for all.
import { elementOf } from './trusted';
import { announce, toast } from './toast';

interface Op { op: string; key?: string; in?: string; html?: string }
interface News { title: string; path: string }

const kept = 'ramus.notify'; // of one person, see person
const person = document.documentElement.dataset.person ?? '';
const prefix = document.documentElement.dataset.prefix ?? '';
const dashboard = prefix + '/dashboard';
const channel = new BroadcastChannel('ramus.notify');
const seen = new Set<string>();
let first = true;
let tries = 0;
let shown = 0; // the last time at which a tab said that a person looks at it

const wanted = () => person !== '' && localStorage.getItem(kept) === person;

/** Returns the text of a row of the dashboard. Links leave for paths of this server alone. */
function read(html: string): News | undefined {
  const link = elementOf(html)?.querySelector<HTMLAnchorElement>('a.row-link');
  const path = link?.getAttribute('href') ?? '';
  const title = link?.textContent?.trim().slice(0, 120) ?? '';
  return title && path.startsWith('/') && !path.startsWith('//') ? { title, path } : undefined;
}

/** Shows news on the page, if a person looks at it. */
function show(news: News) {
  if (document.visibilityState !== 'visible') return;
  channel.postMessage('looked at');
  if (location.pathname === dashboard) return; // it shows the row
  toast(`Needs you: ${news.title}`);
  announce(`Needs you: ${news.title}`);
}

/** Tells of news: tabs that a person looks at show it, and the browser does if there is none. */
function tell(news: News) {
  channel.postMessage(news);
  show(news);
  if (document.visibilityState === 'visible') return;
  const asked = Date.now();
  setTimeout(() => {
    if (shown >= asked || !('Notification' in window) || Notification.permission !== 'granted') return;
    const n = new Notification('Needs you', { body: news.title, tag: news.path });
    n.onclick = () => { window.focus(); location.href = news.path; };
  }, 500);
}

channel.onmessage = e => {
  if (e.data === 'looked at') shown = Date.now();
  else if (wanted()) show(e.data as News);
};

/** Listens until the connection ends. */
function listen(done: () => void) {
  const s = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${prefix}/live`, 'ramus.live.1');
  s.onopen = () => s.send(JSON.stringify({ sub: dashboard, have: {} }));
  s.onmessage = e => {
    tries = 0;
    for (const op of (JSON.parse(e.data as string) as { ops?: Op[] }).ops ?? []) {
      if (op.op === 'drop') seen.delete(op.key!);
      if (op.op !== 'put' || op.in !== 'needs' || seen.has(op.key!)) continue;
      seen.add(op.key!);
      const news = first ? undefined : read(op.html ?? '');
      if (news) tell(news);
    }
    first = false;
    document.documentElement.dataset.notify = 'yes';
  };
  s.onclose = done;
  addEventListener('pagehide', () => s.close(), { once: true });
}

/** Listens in one tab, and again after a while if the connection ends. */
function begin() {
  if (!wanted() || !navigator.locks) return;
  void navigator.locks.request('ramus.notify', () => new Promise<void>(() => {
    const again = () => { if (wanted()) setTimeout(() => listen(again), Math.random() * Math.min(60_000, 1000 * 2 ** tries++)); };
    listen(again);
  }));
}

const button = document.querySelector<HTMLButtonElement>('[data-notify-switch]');
const state = () => {
  if (!button) return;
  button.hidden = false;
  button.textContent = wanted() ? 'Switch off' : 'Switch on';
};
button?.addEventListener('click', async () => {
  if (wanted()) {
    localStorage.removeItem(kept);
    location.reload();
    return;
  }
  localStorage.setItem(kept, person);
  if ('Notification' in window && await Notification.requestPermission() !== 'granted') {
    toast('The browser does not allow notifications, so pages alone show them.', 'away');
  }
  state();
  begin();
});
state();
begin();
