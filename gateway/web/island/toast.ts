// Short messages at the edge of the page. States are announced to screen readers, at most one in five seconds.

const box = () => document.querySelector('.toasts');

export function toast(text: string, kind = '') {
  const e = document.createElement('p');
  e.className = `toast ${kind}`;
  e.textContent = text;
  const into = box();
  for (const old of into?.querySelectorAll('.toast') ?? []) old.remove();
  into?.append(e);
  setTimeout(() => e.remove(), 6000);
}

let last = 0;
let next = '';
let timer = 0;

export function announce(text: string) {
  next = text;
  if (timer) return;
  timer = window.setTimeout(() => {
    timer = 0;
    last = Date.now();
    const e = document.querySelector('[data-announce]');
    if (e) e.textContent = next;
  }, Math.max(0, last + 5000 - Date.now()));
}
