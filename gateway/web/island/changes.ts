// The page of changes: keys, files that open in place, and marks that need no new page.

import { isSingleKey } from './keys';
import { toast } from './toast';
import { documentOf } from './trusted';

const root = document.querySelector<HTMLElement>('.review');
let current: HTMLElement | null = null;

const files = () => [...root!.querySelectorAll<HTMLElement>('.dfile')];

/** Returns the file that keys are about: the one with the focus, or the first one in sight. */
function file(): HTMLElement | undefined {
  const focused = document.activeElement?.closest<HTMLElement>('.dfile');
  if (focused) return focused;
  if (current?.isConnected) return current;
  return files().find(f => f.getBoundingClientRect().bottom > 120);
}

function go(f: HTMLElement | undefined) {
  if (!f) return;
  current = f;
  f.scrollIntoView();
  f.querySelector<HTMLElement>('h2 a')?.focus({ preventScroll: true });
}

/** Returns the first line of each change, and all comments. */
function changes(): HTMLElement[] {
  const changed = (e: Element | null) => !!e && (e.matches('.add, .del') || !!e.querySelector(':scope > .add, :scope > .del'));
  return [...root!.querySelectorAll<HTMLElement>('.dbody > .patch > .l, .dbody > .patch > .r, .thread')]
    .filter(e => e.offsetParent && (e.matches('.thread') || changed(e) && !changed(e.previousElementSibling)));
}

function goToChange(step: number) {
  const list = changes();
  const at = document.activeElement?.closest('.thread, .patch > .l, .patch > .r') ?? document.activeElement?.closest('.dfile');
  let next: HTMLElement | undefined;
  if (at) {
    const is = (e: Element) => at.compareDocumentPosition(e) & (step > 0 ? Node.DOCUMENT_POSITION_FOLLOWING : Node.DOCUMENT_POSITION_PRECEDING);
    next = step > 0 ? list.find(is) : list.findLast(is);
  } else next = step > 0 ? list[0] : undefined;
  if (!next) return;
  current = next.closest('.dfile');
  next.scrollIntoView({ block: 'center' });
  if (next.matches('.thread')) next.focus({ preventScroll: true });
  else next.querySelector<HTMLElement>('.add > a, .del > a, a')?.focus({ preventScroll: true });
}

/** Returns an element of another page of this server, or null if that cannot be had. */
async function elementAt(href: string, id: string): Promise<HTMLElement | null> {
  const answer = await fetch(href, { headers: { Accept: 'text/html' } }).catch(() => null);
  return answer?.ok ? documentOf(await answer.text()).getElementById(id) : null;
}

/**
 * Puts the form of a comment after its line. The link of a line's number leads to the page with that form. A form with words stays where
 * it is.
 */
async function comment(link: HTMLAnchorElement) {
  const words = document.querySelector<HTMLTextAreaElement>('#line-form textarea');
  if (words?.value) {
    words.focus();
    toast('Keep this comment as a draft first, or cancel it.');
    return;
  }
  const form = await elementAt(link.href, 'line-form');
  const line = link.closest('.patch > .l, .patch > .r');
  if (!form || !line) { location.assign(link.href); return; }
  document.getElementById('line-form')?.remove();
  line.after(form);
  form.querySelector('textarea')?.focus();
}

/** Returns the link of the line that the key is about: the one with the focus, or the first change of the file. */
function lineLink(f: HTMLElement | undefined): HTMLAnchorElement | null | undefined {
  const line = document.activeElement?.closest('.dbody > .patch > .l, .dbody > .patch > .r') ?? f?.querySelector('.dbody > .patch .add, .dbody > .patch .del');
  return line?.matches('.l') ? line.querySelector<HTMLAnchorElement>('a') : line?.querySelector<HTMLAnchorElement>('.add > a, .del > a, .l > a');
}

function close(f: HTMLElement | undefined) {
  if (!f) return;
  f.classList.toggle('closed');
  f.querySelector<HTMLElement>('h2 a')?.focus({ preventScroll: true });
}

/** Puts a file of another page of this server in the place of the same file here. */
async function open(f: HTMLElement, href: string) {
  const found = await elementAt(href, f.id);
  if (!found) { location.assign(href); return; }
  f.replaceWith(found);
  go(found);
}

async function mark(form: HTMLFormElement) {
  const f = form.closest<HTMLElement>('.dfile')!;
  const button = form.querySelector('button')!;
  const on = form.querySelector<HTMLInputElement>('[name=on]')!;
  const answer = await fetch(form.action, { method: 'POST', body: new URLSearchParams(new FormData(form) as unknown as Record<string, string>), redirect: 'manual' }).catch(() => null);
  if (answer?.type !== 'opaqueredirect' && !answer?.ok) { form.submit(); return; }
  const viewed = on.value === '1';
  on.value = viewed ? '0' : '1';
  button.setAttribute('aria-pressed', String(viewed));
  f.classList.toggle('closed', viewed);
  const count = document.querySelector('[data-marked]');
  if (count) count.textContent = String(Number(count.textContent) + (viewed ? 1 : -1));
}

if (root) {
  if (innerWidth < 1000) root.querySelector('details.dlist')?.removeAttribute('open');
  root.addEventListener('click', e => {
    const link = (e.target as Element).closest<HTMLAnchorElement>('a[data-open], a[data-cancel], .l > a');
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button || link.getAttribute('href')!.startsWith('#')) return;
    e.preventDefault();
    if (link.matches('[data-cancel]')) {
      const line = link.closest('form')!.previousElementSibling;
      link.closest('form')!.remove();
      line?.querySelector<HTMLElement>('a')?.focus();
    } else if (link.matches('[data-open]')) void open(link.closest<HTMLElement>('.dfile')!, link.href);
    else void comment(link);
  });
  root.addEventListener('submit', e => {
    const form = e.target as HTMLFormElement;
    if (!form.action.endsWith('/viewed')) return;
    e.preventDefault();
    void mark(form);
  });
  addEventListener('keydown', e => {
    if (!isSingleKey(e)) return;
    const list = files(), f = file();
    switch (e.key) {
      case 'j': go(current || document.activeElement?.closest('.dfile') ? list[list.indexOf(f!) + 1] : list[0]); break;
      case 'k': go(list[list.indexOf(f!) - 1]); break;
      case 'n': goToChange(1); break;
      case 'p': goToChange(-1); break;
      case 'x': close(f); break;
      case 'c': { const link = lineLink(f); if (!link) return; link.click(); break; }
      case 'v': f?.querySelector<HTMLElement>('header form button')?.click(); break;
      case 'f': (root!.querySelector<HTMLElement>('.find input') ?? root!.querySelector<HTMLElement>('.dlist summary'))?.focus(); break;
      case '?': {
        const help = root!.querySelector<HTMLDetailsElement>('details.keys');
        if (!help) return;
        help.open = true;
        help.querySelector('summary')!.focus();
        break;
      }
      case 'u': case 's': document.querySelector<HTMLAnchorElement>(`a[data-way="${e.key}"]`)?.click(); break;
      default: return;
    }
    e.preventDefault();
  });
}
