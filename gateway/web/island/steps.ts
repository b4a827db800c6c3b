// Links to a step of a run and to a line of its output, and pictures from before and after that share one place.

/** Opens the step that the address names, as in #step or #step.L120. */
function jump() {
  let hash = location.hash;
  try { hash = decodeURIComponent(hash); } catch { /* it is no code of a text, such as "#%" */ }
  const at = /^#(.+?)(?:\.L(\d+))?$/.exec(hash);
  const row = at && [...document.querySelectorAll<HTMLDetailsElement>('details[data-step]')].find(d => d.dataset.step === at[1]);
  if (!row) return;
  if (at[2]) {
    location.replace(`${location.pathname}/output?${new URLSearchParams({ step: at[1], stream: 'stdout', line: at[2] })}#L${at[2]}`);
    return;
  }
  row.open = true;
  row.scrollIntoView();
  row.querySelector('summary')?.focus({ preventScroll: true });
}

/** Puts two pictures over each other, and a slider below them that says how much of the first one is seen. */
function join(pair: HTMLElement) {
  const [, over] = pair.querySelectorAll('figure');
  const slider = document.createElement('input');
  Object.assign(slider, { type: 'range', min: '0', max: '100', value: '50' });
  slider.setAttribute('aria-label', 'How much is from before, in percent');
  const show = () => {
    over.querySelector('img')!.style.clipPath = `inset(0 0 0 ${slider.value}%)`;
    pair.style.setProperty('--at', `${slider.value}%`);
  };
  slider.addEventListener('input', show);
  const move = (e: PointerEvent) => {
    const box = over.getBoundingClientRect();
    slider.value = String(100 * (e.clientX - box.left) / box.width);
    show();
  };
  over.addEventListener('pointerdown', e => { e.preventDefault(); over.setPointerCapture(e.pointerId); move(e); });
  over.addEventListener('pointermove', e => { if (over.hasPointerCapture(e.pointerId)) move(e); });
  pair.classList.add('on');
  pair.append(slider);
  show();
}

export function steps() {
  const run = document.querySelector('[data-live=run], [data-live=time]');
  if (!run) return;
  const joinAll = () => run.querySelectorAll<HTMLElement>('.swipe:not(.on)').forEach(join);
  new MutationObserver(joinAll).observe(run, { childList: true, subtree: true });
  joinAll();
  addEventListener('hashchange', jump);
  jump();
}
