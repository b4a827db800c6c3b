// The lines of an output: a window that moves with the scroll position, and follows an output that grows.

import type { Tools } from './past';

const mostLines = 1000; // of the window, if each part has 250
const fullPart = 250; // lines of a part that grows no more
const near = 800; // px before the end of the window at which more is loaded
const growEvery = 1000;

export function lines(tools: Tools) {
  const out = document.querySelector<HTMLElement>('.out');
  const root = document.documentElement;
  const before = out?.previousElementSibling as HTMLElement | null, after = out?.nextElementSibling as HTMLElement | null;
  if (!out || !before || !after) return;
  root.style.overflowAnchor = 'none'; // this script keeps the place itself
  const parts = () => [...out.querySelectorAll<HTMLElement>(':scope > .part')];
  const isAtEnd = () => root.scrollHeight - innerHeight - scrollY < 120 && !parts().at(-1)!.dataset.next;
  const toEnd = () => scrollTo({ top: root.scrollHeight, behavior: 'instant' });
  let busy = false, working = 'working' in out.dataset;
  let following = false; // the person sees the end of an output that grows

  /** Changes the window, and keeps the lines that are seen where they are. */
  function keep(change: () => void) {
    const isSeen = (e: Element) => e.getBoundingClientRect().bottom > 60;
    const seen = [...([...out!.querySelectorAll('samp')].find(isSeen)?.children ?? [])].find(isSeen);
    const top = seen?.getBoundingClientRect().top ?? 0;
    change();
    if (following) toEnd();
    else if (seen?.isConnected) scrollBy({ top: seen.getBoundingClientRect().top - top, behavior: 'instant' });
  }

  const size = (p: HTMLElement) => Number(p.dataset.to) - Number(p.dataset.from) + 1;

  /** Removes parts at one end as long as there are enough lines without them. */
  function letGo(end: 0 | -1) {
    const all = parts();
    let left = all.reduce((n, p) => n + size(p), 0);
    while (all.length > 1 && left - size(all.at(end)!) >= mostLines - fullPart) {
      const gone = (end ? all.pop() : all.shift())!;
      left -= size(gone);
      gone.remove();
    }
  }

  /** Has the links to other parts lead on from the window. */
  function relink() {
    const all = parts();
    for (const [nav, href, rel] of [[before!, all[0].dataset.before, 'prev'], [after!, all.at(-1)!.dataset.next, 'next']] as const) {
      const link = nav.querySelector<HTMLAnchorElement>(`a[rel=${rel}]`);
      nav.hidden = !href;
      if (link && href) link.href = href;
    }
  }

  async function part(href: string): Promise<[HTMLElement | null, Document | null]> {
    const answer = await fetch(href, { headers: { Accept: 'text/html' } }).catch(() => null);
    if (!answer?.ok || answer.redirected) return [null, null];
    const page = tools.documentOf(await answer.text());
    return [page.querySelector<HTMLElement>('.part'), page];
  }

  /** Loads the part before or after the window, and lets go of one at the other end. */
  async function more(step: 1 | -1) {
    const all = parts(), href = step > 0 ? all.at(-1)!.dataset.next : all[0].dataset.before;
    if (busy || !href) return;
    busy = true;
    const [fresh] = await part(href);
    if (fresh) {
      if (!document.hidden) await new Promise(r => requestAnimationFrame(() => setTimeout(r))); // parsing it took a while
      keep(() => {
        if (step > 0) out!.append(fresh); else out!.prepend(fresh);
        letGo(step > 0 ? 0 : -1);
        close();
      });
      relink();
    }
    busy = false;
    if (fresh) look();
  }

  /** Loads more if the end of the window is near. */
  function look() {
    const box = out!.getBoundingClientRect();
    if (box.bottom < innerHeight + near) void more(1);
    else if (box.top > -near) void more(-1);
  }

  /** Takes the lines that came since the last one, which may have been half a line. */
  async function grow() {
    const last = parts().at(-1)!;
    if (!busy && !document.hidden && !last.dataset.next) {
      busy = true;
      const [fresh, page] = await part(last.dataset.again!);
      if (fresh && page && last.isConnected) {
        following = isAtEnd() || following;
        take(last, fresh);
        const total = page.querySelector('[data-total]'), shown = document.querySelector('[data-total]');
        if (total && shown) shown.textContent = total.textContent;
        working = !!page.querySelector('.out[data-working]');
        if (following) toEnd();
      }
      busy = false;
    }
    if (working) setTimeout(grow, growEvery);
    else {
      following = false;
      document.querySelector('.head .badge.live')?.remove();
    }
  }

  /** Moves the lines of a part to the end of another one, or adds the part if that one is full. */
  function take(last: HTMLElement, fresh: HTMLElement) {
    const end = last.querySelector(`#L${last.dataset.to}`);
    (end?.matches('summary') ? end.parentElement! : end)?.remove(); // fresh begins with it
    if (size(last) >= fullPart) {
      last.dataset.to = String(Number(last.dataset.to) - 1);
      out!.append(fresh);
      letGo(0);
    } else {
      for (const block of [...fresh.children] as HTMLElement[]) {
        const end = last.lastElementChild as HTMLElement | null;
        if (end?.nodeName !== block.nodeName || end.dataset.group !== block.dataset.group) { last.append(block); continue; }
        const lines = block.matches('pre') ? block : block.querySelector('pre');
        const list = end.matches('pre') ? end : end.querySelector('pre');
        if (list && lines) list.append(...lines.childNodes); else if (lines) end.append(lines);
      }
      for (const name of ['to', 'again', 'next']) {
        if (fresh.dataset[name]) last.dataset[name] = fresh.dataset[name]; else delete last.dataset[name];
      }
    }
    close();
    relink();
  }

  const closed = new Set<string>();

  /** Closes the groups that a person closed, also in parts that come later. */
  function close() {
    for (const d of out!.querySelectorAll<HTMLDetailsElement>('details[data-group]')) d.open = !closed.has(d.dataset.group!);
  }

  out.addEventListener('click', e => {
    const group = (e.target as Element).closest('summary')?.parentElement as HTMLDetailsElement | null;
    if (!group) return;
    e.preventDefault();
    if (group.open) closed.add(group.dataset.group!); else closed.delete(group.dataset.group!);
    keep(close);
    look();
  });
  addEventListener('scroll', () => { following = working && isAtEnd(); look(); }, { passive: true });
  new ResizeObserver(() => { if (following) toEnd(); }).observe(out); // lines that come into sight are laid out then
  addEventListener('hashchange', jump);

  /** Goes to the line that the address names, if the window does not have it. */
  function jump() {
    const line = /^#L(\d+)$/.exec(location.hash)?.[1];
    if (!line || document.getElementById('L' + line)) return;
    const to = new URL(location.href);
    for (const name of ['from', 'to', 'q', 'after']) to.searchParams.delete(name);
    if (to.searchParams.get('line') === line) return; // there is no such line
    to.searchParams.set('line', line);
    location.replace(to);
  }

  jump();
  if (working) setTimeout(grow, growEvery);
}
