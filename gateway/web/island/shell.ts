// Loads the terminal when its tab is shown, and only then. Without it the line console stays.

const term = document.querySelector<HTMLElement>('r-term[data-src]');
let loaded = false;

function load() {
  if (!term || loaded || !term.getClientRects().length) return;
  loaded = true;
  import(term.dataset.src!).catch(() => { term.dataset.failed = ''; });
}

load();
addEventListener('resize', load);
