// Keeps the page up to date by one WebSocket. The page has the elements [data-key][data-hash], in lists [data-live].

import { documentOf, elementOf } from './trusted';
import { refreshTimes } from './time';
import { announce, toast } from './toast';
import { morph } from './morph';

interface Op { op: string; key?: string; in?: string; before?: string; html?: string; keys?: string[] }
interface Message { at?: string; n?: number; ops?: Op[]; gap?: boolean; problem?: { status: number; title: string; detail?: string } }

const root = document.querySelector<HTMLElement>('[data-live-at]');
let at = root?.dataset.liveAt ?? '';
const hiddenFor = 60_000;
let socket: WebSocket | undefined;
let tries = 0;
let timer = 0;
let away = 0;
let ended = false;

const find = (key: string) => root!.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`);
const list = (name: string) => root!.querySelector<HTMLElement>(`[data-live="${CSS.escape(name)}"]`);

function have(): Record<string, string> {
  const all: Record<string, string> = {};
  for (const e of root!.querySelectorAll<HTMLElement>('[data-key]')) all[e.dataset.key!] = e.dataset.hash ?? '';
  return all;
}

/** Reports whether a person is inside an element: has the focus, or text of it selected. */
function busy(e: Element): boolean {
  if (e.contains(document.activeElement) && document.activeElement !== document.body) {
    return document.activeElement!.matches('input, textarea, select, [contenteditable]') || e.matches('[data-keep]');
  }
  const s = getSelection();
  return !!s && !s.isCollapsed && e.contains(s.anchorNode);
}

/** Puts an element in the place of another one, and keeps its open elements, focus and scroll positions. */
function replace(old: HTMLElement, fresh: HTMLElement) {
  const details = [...fresh.querySelectorAll('details')];
  const before = [...old.querySelectorAll('details')];
  if (old instanceof HTMLDetailsElement && fresh instanceof HTMLDetailsElement) fresh.open = old.open;
  details.forEach((d, i) => { if (before[i]) d.open = before[i].open; });
  const focused = old.contains(document.activeElement) ? pathTo(old, document.activeElement!) : undefined;
  const scrolled = [...old.querySelectorAll('pre')].map(p => ({ top: p.scrollTop, end: p.scrollHeight - p.clientHeight - p.scrollTop < 8 }));
  old.replaceWith(fresh);
  [...fresh.querySelectorAll('pre')].forEach((p, i) => {
    const s = scrolled[i];
    if (!s || s.end) p.scrollTop = p.scrollHeight; else p.scrollTop = s.top;
  });
  if (focused) (follow(fresh, focused) as HTMLElement | undefined)?.focus?.({ preventScroll: true });
}

function pathTo(from: Element, to: Element): number[] {
  const path: number[] = [];
  for (let e = to; e !== from; e = e.parentElement!) path.unshift([...e.parentElement!.children].indexOf(e));
  return path;
}

function follow(from: Element, path: number[]): Element | undefined {
  return path.reduce<Element | undefined>((e, i) => e?.children[i], from);
}

/** Puts the elements of a list into the order of their keys. Those that are in place stay, with their focus. */
function order(into: HTMLElement | null, keys: string[]) {
  let next: Element | null = null;
  for (const key of keys.reverse()) {
    const e = find(key);
    if (!e || e.parentElement !== into) continue;
    if (e.nextElementSibling !== next) into.insertBefore(e, next);
    next = e;
  }
}

const waiting = new Map<string, string>();

function put(op: Op) {
  const fresh = elementOf(op.html ?? '') as HTMLElement | null;
  if (!fresh || !op.key) return;
  const old = find(op.key);
  if (!old) {
    const into = list(op.in ?? '');
    if (!into) { more(); return; }
    const before = op.before ? find(op.before) : null;
    into.insertBefore(fresh, before?.parentElement === into ? before : null);
    refreshTimes(fresh);
    return;
  }
  if (busy(old)) {
    waiting.set(op.key, op.html!);
    old.classList.add('newer');
    return;
  }
  waiting.delete(op.key);
  if (old.matches(growing) && fresh.matches(growing)) {
    const atEnd = [...old.querySelectorAll('pre')].filter(p => p.scrollHeight - p.clientHeight - p.scrollTop < 8);
    morph(old, fresh);
    for (const p of atEnd) p.scrollTop = p.scrollHeight;
    return;
  }
  replace(old, fresh);
  refreshTimes(fresh);
}

/** The elements whose words grow. Only the new words change, so that the browser lays out no others. */
const growing = '.entry.words';

/** Loads the page again for the first element of a list, because the page of an empty list has no place for it. A person who fills in a form gets a toast. */
function more() {
  clearTimeout(timerOfMore);
  if (document.activeElement?.matches('input, textarea, select')) toast('There is something new here. Load the page again to see it.');
  else timerOfMore = window.setTimeout(() => location.reload(), Math.max(0, 2000 - performance.now()));
}

let timerOfMore = 0; // of a page that is loaded again: at most one load in two seconds

document.addEventListener('focusout', () => setTimeout(() => {
  for (const [key, html] of waiting) {
    const old = find(key);
    if (!old) waiting.delete(key);
    else if (!busy(old)) put({ op: 'put', key, html });
  }
}, 50));

function apply(m: Message) {
  if (m.at !== at) return;
  if (m.problem) {
    ended = true;
    toast(m.problem.detail || m.problem.title, 'away');
    return;
  }
  if (m.gap) { pending = []; void load(); return; }
  for (const op of m.ops ?? []) pending.push(op);
  if (pending.length) soon();
}

let pending: Op[] = [];
let frame = 0;
let late = 0;

/** Changes the page before the browser draws it next. A page that nobody sees is not drawn, and changes at once. */
function soon() {
  if (document.hidden) { flush(); return; }
  frame ||= requestAnimationFrame(flush);
  late ||= window.setTimeout(flush, 250); // the window is behind another one
}

/** Applies all pending ops. Of several in a row for the same element only the last one counts. */
function flush() {
  cancelAnimationFrame(frame);
  clearTimeout(late);
  frame = late = 0;
  const ops = pending;
  pending = [];
  for (const [i, op] of ops.entries()) {
    if (op.op === 'put' && replaced(ops, i)) continue;
    switch (op.op) {
      case 'put': put(op); break;
      case 'drop': find(op.key!)?.remove(); break;
      case 'order': order(list(op.in!), op.keys ?? []); break;
      case 'title': entitle(op.html ?? ''); break;
    }
  }
}

/** Gives the page a title, and announces it if it is another one. */
function entitle(title: string) {
  const before = document.title;
  document.title = title;
  if (document.title !== before) announce(title);
}

/** Reports whether a later op puts the element of ops[i] again, and none between them is about it or about order. */
function replaced(ops: Op[], i: number): boolean {
  if (!find(ops[i].key!)) return false; // it is inserted where this op says
  for (const op of ops.slice(i + 1)) {
    if (op.op === 'order' || op.op === 'drop' && op.key === ops[i].key) return false;
    if (op.op === 'put' && op.key === ops[i].key) return true;
  }
  return false;
}

/** Loads the page again. If there is no answer, the next connection brings what the page lacks. */
async function load() {
  const was = at;
  const page = await pageAt(location.href).catch(() => null);
  if (at !== was) return; // moveTo has loaded another page meanwhile
  if (page) { take(page, true); subscribe(); } else if (page === null) socket?.close(); else location.reload();
}

/** Returns the page at an address, or nothing if the server answers with another one. */
async function pageAt(path: string): Promise<Document | undefined> {
  const answer = await fetch(path, { headers: { Accept: 'text/html' }, credentials: 'same-origin' });
  return answer.ok && !answer.redirected ? documentOf(await answer.text()) : undefined;
}

/** Turns this page into the page at path, which must have the same lists, and more in them. With all set, it must have the same elements, which
 * replace those of this page. Calls change before it inserts elements. Returns that page, or undefined if it cannot be loaded. */
export async function moveTo(path: string, change: () => void, all = false): Promise<Document | undefined> {
  const page = await pageAt(path).catch(() => undefined);
  const fresh = page?.querySelector<HTMLElement>('[data-live-at]');
  if (!page || !fresh || !root) return undefined;
  flush();
  change();
  const before = at;
  at = root.dataset.liveAt = fresh.dataset.liveAt!;
  if (all) {
    document.title = page.title;
    await swap(page);
  } else take(page, false); // this page may be newer
  history.replaceState(history.state, '', all ? at : path);
  subscribe(before);
  return page;
}

/** Takes over the elements of a page, or only those that this page lacks if all is not set. */
function take(page: Document, all: boolean) {
  const rows = (of: ParentNode) => [...of.querySelectorAll<HTMLElement>('[data-key]')];
  const seen = new Set(rows(page).map(e => e.dataset.key));
  if (all) for (const e of rows(root!)) if (!seen.has(e.dataset.key)) e.remove();
  for (const l of page.querySelectorAll<HTMLElement>('[data-live]')) {
    let before: string | undefined;
    for (const e of rows(l).reverse()) { // the follower of each one is there already
      const key = e.dataset.key!;
      const old = find(key);
      if (!old || all && old.dataset.hash !== e.dataset.hash) put({ op: 'put', key, in: l.dataset.live, before, html: e.outerHTML });
      before = key;
    }
    if (all) order(list(l.dataset.live!), rows(l).map(e => e.dataset.key!));
  }
}

/** Puts the elements of a page in the places of those with their keys, one in each frame, so that none takes long. */
async function swap(page: Document) {
  for (const e of page.querySelectorAll<HTMLElement>('[data-key]')) {
    const old = find(e.dataset.key!);
    if (!old || old.dataset.hash === e.dataset.hash) continue;
    if (!document.hidden) await new Promise(r => requestAnimationFrame(() => setTimeout(r)));
    if ('morph' in e.dataset) {
      refreshTimes(e);
      morph(old, e);
    } else {
      old.replaceWith(e);
      refreshTimes(e);
    }
  }
}

/** Follows the page, and no longer the one that it was before. */
function subscribe(before?: string) {
  flush(); // the server continues from the rows of the page
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ un: before, sub: at, title: document.title, have: have() }));
}

function connect() {
  clearTimeout(timer);
  if (!root || ended || socket || document.hidden) return;
  const s = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${document.documentElement.dataset.prefix ?? ''}/live`, 'ramus.live.1');
  socket = s;
  s.onopen = () => {
    if (tries > 1) toast('Connected again.');
    tries = 0;
    document.documentElement.dataset.connected = 'yes';
    subscribe();
  };
  s.onmessage = e => apply(JSON.parse(e.data as string) as Message);
  s.onclose = e => {
    if (socket === s) socket = undefined;
    document.documentElement.dataset.connected = 'no';
    if (e.code === 4401) { location.reload(); return; }
    again();
  };
}

/** Connects again after a while. */
function again() {
  if (document.hidden || ended) return;
  const wait = Math.random() * Math.min(15_000, 500 * 2 ** tries);
  if (++tries === 3) toast('No connection. This page shows the last state and goes on by itself.', 'away');
  clearTimeout(timer);
  timer = window.setTimeout(connect, wait);
}

function leave() {
  const s = socket;
  socket = undefined;
  if (s) { s.onclose = null; s.close(); }
}

document.addEventListener('visibilitychange', () => {
  flush();
  clearTimeout(away);
  if (document.hidden) away = window.setTimeout(leave, hiddenFor);
  else connect();
});
addEventListener('online', connect);
addEventListener('pagehide', leave); // keeps the page in the browser's cache of pages
addEventListener('pageshow', connect);
connect();
