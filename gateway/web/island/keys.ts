// Keys: "/" goes to the search field, g with a letter to a page, and "[" and "]" to the one before and after. A person can switch single keys off in the settings.

const pages: Record<string, string> = { d: '/dashboard', w: '/workspaces', n: '/workspaces/new', t: '/tasks', r: '/repos', s: '/settings' };
const prefix = document.documentElement.dataset.prefix ?? '';
let g = 0;

/** Reports whether a key is one for the page, and not a part of a text, of another key or of a longer one. */
export function isSingleKey(e: KeyboardEvent): boolean {
  return !(e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || document.documentElement.dataset.keys === 'off' ||
    (e.target as Element).closest('input, textarea, select, [contenteditable], .xterm'));
}

addEventListener('keydown', e => {
  if (!isSingleKey(e)) return;
  if (e.key === '/') {
    const field = document.querySelector<HTMLInputElement>('input[type="search"]');
    if (field) { e.preventDefault(); field.focus(); }
  } else if (e.key === '[' || e.key === ']') {
    document.querySelector<HTMLAnchorElement>(e.key === '[' ? 'a[rel=prev]' : 'a[rel=next]')?.click();
  } else if (e.key === 'g') {
    g = Date.now();
  } else if (Date.now() - g < 1200 && pages[e.key]) {
    e.preventDefault();
    location.assign(prefix + pages[e.key]);
  }
});

// The link of the bottom bar to the search field.
if (location.hash === '#q') document.querySelector<HTMLInputElement>('#q')?.focus();
