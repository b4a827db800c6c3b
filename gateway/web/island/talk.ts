// The conversation: Enter sends and Ctrl Enter says at once, files come by paste and drop, and the view follows the end while the reader is
// there. All of it works without this file, by the buttons.

import { moveTo } from './live';
import { refreshTimes } from './time';
import { announce, toast } from './toast';
import { documentOf } from './trusted';

const list = document.querySelector<HTMLElement>('[data-live="talk"]');
const form = document.querySelector<HTMLFormElement>('form[data-talk]');
const near = 80; // pixels from the end that count as the end

let scrolls: HTMLElement | undefined; // until the window has another size
addEventListener('resize', () => { scrolls = undefined; });

/** Returns the element that scrolls the conversation. It asks for no size, because that would lay the page out. */
function scroller(): HTMLElement {
  for (let e = list?.parentElement; e && !scrolls; e = e.parentElement) {
    if (e !== document.body && /auto|scroll/.test(getComputedStyle(e).overflowY)) scrolls = e;
  }
  return scrolls ??= document.scrollingElement as HTMLElement;
}

/** Fetches the part that a page left out, and returns its elements. */
async function fetched(src: string): Promise<Element[]> {
  const answer = await fetch(src, { headers: { Accept: 'text/html' }, credentials: 'same-origin' });
  if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
  return [...(documentOf(await answer.text()).querySelector('[data-steps]')?.children ?? [])];
}

// An entry that opens gets the part that the page left out. Without this file its link leads there.
document.addEventListener('toggle', e => {
  const d = e.target as HTMLDetailsElement;
  if (!d.open || !d.dataset?.src || d.dataset.filled) return;
  d.dataset.filled = 'yes';
  void (async () => {
    try {
      const steps = await fetched(d.dataset.src!);
      const inner = d.matches('.tool') ? steps.flatMap(s => [...s.querySelectorAll('.part')]) : steps;
      const into = document.createElement('div');
      into.className = 'filled';
      into.append(...inner);
      if (!inner.length) into.textContent = 'There is nothing to show.';
      d.querySelector(':scope > :not(summary)')?.replaceWith(into);
      refreshTimes(into);
    } catch {
      delete d.dataset.filled;
      d.open = false;
      toast('It cannot be loaded now. Try again.', 'away');
    }
  })();
}, true);
document.addEventListener('click', e => {
  const a = (e.target as Element).closest<HTMLAnchorElement>('details a[data-more]');
  if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  const line = a.closest('p') ?? a;
  fetched(a.href).then(steps => { line.replaceWith(...steps); }, () => toast('It cannot be loaded now. Try again.', 'away'));
});

if (list) {
  const frame = list.closest<HTMLElement>('.talk-scroll') ?? list;
  const place = `ramus.read.${frame.dataset.read}`;
  const entries = () => [...list.querySelectorAll<HTMLElement>(':scope > [data-entry]')];
  const working = () => !!document.querySelector('.talk-status .doing');
  const named = (id: string) => entries().find(e => e.dataset.entry === id);
  let following = false;
  let known = new Set<string | undefined>(); // the keys of the entries that are not new
  const atEnd = () => { const s = scroller(); return s.scrollHeight - s.clientHeight - s.scrollTop < near; };
  const toEnd = () => { const s = scroller(); s.scrollTop = s.scrollHeight; };
  const pill = document.createElement('button');
  pill.type = 'button';
  pill.className = 'btn primary talk-new';
  pill.hidden = true;
  pill.addEventListener('click', () => { following = true; caughtUp(); toEnd(); });
  frame.append(pill);
  const caughtUp = () => { known = new Set(entries().map(e => e.dataset.key)); pill.hidden = true; };
  caughtUp();

  // The place of the reader is the first entry in sight. At the end there is none, and until the reader moves it stays.
  let noting = 0;
  let moved = false;
  for (const kind of ['wheel', 'touchmove', 'keydown', 'pointerdown']) addEventListener(kind, () => { moved = true; }, { capture: true, passive: true });
  const note = () => {
    noting = 0;
    const top = scroller() === frame ? frame.getBoundingClientRect().top : 60;
    const first = atEnd() ? undefined : entries().find(e => e.getBoundingClientRect().bottom > top + 8);
    if (first?.dataset.entry) sessionStorage.setItem(place, first.dataset.entry); else sessionStorage.removeItem(place);
  };
  addEventListener('scroll', () => {
    following = atEnd();
    if (following) caughtUp();
    if (moved) noting ||= window.setTimeout(note, 200);
  }, { capture: true, passive: true });
  const log = list.closest('[role=log]');
  // The list grows at most once in a frame, and its size is known then.
  new ResizeObserver(() => { if (following) toEnd(); }).observe(list);
  let marked: string | undefined; // the key of the first entry before the list grew upward; rows above it are not new
  new MutationObserver(() => {
    const busy = String(!!list.querySelector('.md.open'));
    if (log && log.getAttribute('aria-busy') !== busy) log.setAttribute('aria-busy', busy);
    if (following) { caughtUp(); return; }
    const all = entries();
    const from = Math.max(0, all.findIndex(e => e.dataset.key === marked));
    const fresh = all.slice(from).filter(e => !known.has(e.dataset.key)).length;
    const text = `New · ${fresh}`;
    if (pill.textContent !== text) pill.textContent = text;
    pill.hidden = !fresh;
  }).observe(list, { childList: true, subtree: true, attributes: true, attributeFilter: ['class'] });

  // Earlier rows are inserted above the shown ones, which keep their place. Without this file the link loads the page of both.
  let loading = false;
  let silent = 0;
  const earlier = (page: ParentNode) => page.querySelector<HTMLElement>('[data-part="earlier"]');
  const grow = async (link: HTMLAnchorElement) => {
    const s = scroller();
    const height = () => entries().find(e => e.dataset.key === marked)?.getBoundingClientRect().top;
    let top = 0;
    const page = await moveTo(link.href, () => {
      following = false;
      s.style.overflowAnchor = 'none'; // the place is kept below, in browsers that do not keep it too
      requestAnimationFrame(() => { s.style.overflowAnchor = ''; });
      log?.setAttribute('aria-live', 'off'); // until screen readers have seen the rows
      clearTimeout(silent);
      silent = window.setTimeout(() => log?.removeAttribute('aria-live'), 500);
      marked = entries()[0]?.dataset.key;
      top = height() ?? 0;
    }).catch(() => undefined);
    if (!page) { toast('It cannot be loaded now. Try again.', 'away'); return; }
    const focused = document.activeElement === link;
    const next = earlier(page);
    if (next) link.closest('p')!.replaceWith(next); else link.closest('p')!.remove();
    s.scrollTop += (height() ?? top) - top;
    if (focused) (next?.querySelector('a') ?? frame).focus({ preventScroll: true });
    announce('Earlier messages are shown.');
  };
  frame.addEventListener('click', e => {
    const link = (e.target as Element).closest<HTMLAnchorElement>('a[data-grow]');
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    if (loading) return;
    loading = true;
    void grow(link).finally(() => { loading = false; });
  });

  // The page opens at the entry of its address, else where the reader was, else at the question of the agent at work, else at the end if the
  // agent works, else at the last prompt.
  const lead = document.querySelector<HTMLAnchorElement>('.talk-status .doing a[href^="#"]');
  const question = lead && document.getElementById(decodeURIComponent(lead.hash.slice(1)));
  const wanted = frame.dataset.at ? named(frame.dataset.at) : undefined;
  const before = named(sessionStorage.getItem(place) ?? '');
  if (wanted) {
    wanted.classList.add('found');
    wanted.scrollIntoView({ block: 'center' });
  } else if (before) {
    before.scrollIntoView({ block: 'start' });
  } else if (question) {
    question.scrollIntoView({ block: 'center' });
    following = atEnd();
  } else if (working()) {
    following = true;
    toEnd();
  } else if (frame.clientHeight < frame.scrollHeight || entries().length > 1) {
    const last = [...list.querySelectorAll<HTMLElement>(':scope > .prompt')].pop();
    if (scroller() === frame) frame.scrollTop = (last?.offsetTop ?? frame.scrollHeight) - list.offsetTop;
    else if (entries().indexOf(last!) > 0) last!.scrollIntoView({ block: 'start' });
    following = atEnd();
  }
}

if (form) {
  const area = form.querySelector<HTMLTextAreaElement>('textarea[data-enter]')!;
  const input = form.querySelector<HTMLInputElement>('input[type="file"]')!;
  const picked = form.querySelector<HTMLElement>('.picked')!;
  const touch = matchMedia('(pointer: coarse)');

  area.addEventListener('keydown', e => {
    if (e.key !== 'Enter' || e.isComposing || e.shiftKey) return;
    const now = form.querySelector<HTMLButtonElement>('[data-now]');
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      e.stopPropagation();
      form.requestSubmit(now ?? undefined);
    } else if (!touch.matches) {
      e.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener('submit', e => {
    sessionStorage.removeItem(`ramus.read.${document.querySelector<HTMLElement>('.talk-scroll')?.dataset.read}`);
    if (!area.value.trim() && !input.files?.length) { e.preventDefault(); area.focus(); }
  });

  const show = () => {
    const names = [...(input.files ?? [])].map(f => f.name);
    picked.textContent = names.join(', ');
    picked.hidden = !names.length;
  };
  const add = (files: Iterable<File>) => {
    const all = new DataTransfer();
    for (const f of input.files ?? []) all.items.add(f);
    for (const f of files) if (all.items.length < 5) all.items.add(f);
    input.files = all.files;
    show();
    announce(`${all.files.length} files`);
  };
  input.addEventListener('change', show);
  area.addEventListener('paste', e => {
    const files = [...(e.clipboardData?.files ?? [])];
    if (files.length) { e.preventDefault(); add(files); }
  });
  form.addEventListener('dragover', e => { if (e.dataTransfer?.types.includes('Files')) { e.preventDefault(); form.dataset.drop = ''; } });
  form.addEventListener('dragleave', () => { delete form.dataset.drop; });
  form.addEventListener('drop', e => {
    delete form.dataset.drop;
    if (e.dataTransfer?.files.length) { e.preventDefault(); add(e.dataTransfer.files); }
  });
}
