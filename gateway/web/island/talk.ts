// The conversation: Enter sends and Ctrl Enter says at once, files come by paste and drop, and the view follows the end while the reader is
// there. All of it works without this file, by the buttons.

import { announce } from './toast';

const list = document.querySelector<HTMLElement>('[data-live="talk"]');
const form = document.querySelector<HTMLFormElement>('form[data-talk]');
const near = 80; // pixels from the end that count as the end

/** Returns the element that scrolls the conversation. */
function scroller(): HTMLElement {
  for (let e = list as HTMLElement | null; e; e = e.parentElement) {
    if (e.scrollHeight > e.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(e).overflowY)) return e;
  }
  return document.scrollingElement as HTMLElement;
}

if (list) {
  let following = !new URLSearchParams(location.search).has('entry');
  let fresh = 0;
  const atEnd = () => { const s = scroller(); return s.scrollHeight - s.clientHeight - s.scrollTop < near; };
  const toEnd = () => { const s = scroller(); s.scrollTop = s.scrollHeight; };
  const pill = document.createElement('button');
  pill.type = 'button';
  pill.className = 'btn primary talk-new';
  pill.hidden = true;
  pill.addEventListener('click', () => { following = true; fresh = 0; pill.hidden = true; toEnd(); });
  const log = list.closest('[role=log]') ?? list;
  log.after(pill);
  addEventListener('scroll', () => {
    following = atEnd();
    if (following) { fresh = 0; pill.hidden = true; }
  }, { capture: true, passive: true });
  new MutationObserver(changes => {
    log.setAttribute('aria-busy', String(!!list.querySelector('.md.open')));
    const added = changes.reduce((n, c) => n + [...c.addedNodes].filter(e => e instanceof HTMLElement).length - c.removedNodes.length, 0);
    if (following) { toEnd(); return; }
    if (added > 0) {
      fresh += added;
      pill.textContent = `New · ${fresh}`;
      pill.hidden = false;
    }
  }).observe(list, { childList: true });
  if (following && matchMedia('(min-width: 1100px)').matches) toEnd();
}

if (form) {
  const area = form.querySelector<HTMLTextAreaElement>('textarea[data-enter]')!;
  const input = form.querySelector<HTMLInputElement>('input[type="file"]')!;
  const picked = form.querySelector<HTMLElement>('.picked')!;
  const typing = matchMedia('(pointer: fine)');

  area.addEventListener('keydown', e => {
    if (e.key !== 'Enter' || e.isComposing || e.shiftKey) return;
    const now = form.querySelector<HTMLButtonElement>('[data-now]');
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      e.stopPropagation();
      form.requestSubmit(now ?? undefined);
    } else if (typing.matches) {
      e.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener('submit', e => {
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
