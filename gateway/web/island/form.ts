// Forms: Ctrl Enter sends, a form is sent once, and a draft outlives the page. All of them work without this file.

// Drafts are of one person. They go when the person signs out, and when another one is here.
const drafts = 'ramus.draft.';
const owner = 'ramus.drafts-of';

function dropDrafts() {
  for (const key of Object.keys(localStorage)) if (key.startsWith(drafts)) localStorage.removeItem(key);
}

const person = document.documentElement.dataset.person;
if (person !== undefined && localStorage.getItem(owner) !== person) {
  if (localStorage.getItem(owner) !== null) dropDrafts();
  localStorage.setItem(owner, person);
}
addEventListener('submit', e => {
  const way = (e.target as Element).getAttribute('action') ?? '';
  if (way.endsWith('/auth/out') || way.endsWith('/auth/out/everywhere')) dropDrafts();
});

for (const area of document.querySelectorAll<HTMLTextAreaElement>('textarea[data-draft]')) {
  const key = drafts + area.dataset.draft;
  if (!area.value) area.value = localStorage.getItem(key) ?? '';
  area.addEventListener('input', () => area.value ? localStorage.setItem(key, area.value) : localStorage.removeItem(key));
  area.form?.addEventListener('submit', () => localStorage.removeItem(key));
}

// While somebody types a prompt, the container for it starts. The server decides, and gives it back if nothing is sent.
for (const area of document.querySelectorAll<HTMLTextAreaElement>('textarea[data-warm]')) {
  let last = -Infinity;
  area.addEventListener('input', () => {
    if (!area.value || performance.now() - last < 45_000) return;
    last = performance.now();
    const form = new FormData(), repo = area.form?.querySelector<HTMLSelectElement>('[name=repository]')?.value;
    if (repo) form.set('repository', repo);
    fetch(area.dataset.warm!, {method: 'POST', body: form}).catch(() => {});
  });
}

addEventListener('keydown', e => {
  if (e.key !== 'Enter' || !(e.ctrlKey || e.metaKey)) return;
  const area = (e.target as Element).closest('textarea');
  if (area?.form) { e.preventDefault(); area.form.requestSubmit(); }
});

addEventListener('submit', e => {
  const form = e.target as HTMLFormElement;
  if (form.method !== 'post' || e.defaultPrevented) return;
  if (form.dataset.sent) { e.preventDefault(); return; }
  form.dataset.sent = 'yes';
});
addEventListener('pageshow', () => { for (const f of document.forms) delete f.dataset.sent; });

// Filters are applied as soon as they change.
addEventListener('change', e => {
  const form = (e.target as Element).closest<HTMLFormElement>('form[data-auto]');
  if (form && !(e.target as Element).matches('input[type="search"]')) form.requestSubmit();
});

// A menu closes by Escape and by a press elsewhere.
addEventListener('click', e => {
  for (const d of document.querySelectorAll<HTMLDetailsElement>('details.menu[open]')) if (!d.contains(e.target as Node)) d.open = false;
});
addEventListener('keydown', e => {
  if (e.key !== 'Escape') return;
  for (const d of document.querySelectorAll<HTMLDetailsElement>('details.menu[open]')) {
    d.open = false;
    d.querySelector('summary')?.focus();
  }
});
