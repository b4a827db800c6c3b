// The slider of a timeline: it moves the page to another command without loading it, and draws all commands above itself.

import type { Tools } from './past';

const restFor = 120; // ms that the slider rests before its command is loaded
const playEvery = 1000;

/** The ways in which a command ends, in the order in which one hides another: its name, its height above the slider and the class of its colour. */
const ends: Record<string, [string, number, string]> = {
  s: ['changed nothing', 0.25, 'soft'], c: ['changed files', 0.6, 'good'], w: ['at work', 0.6, 'calm'], f: ['failed', 1, 'bad-text'],
};

export function scrub(tools: Tools) {
  const form = document.querySelector<HTMLFormElement>('form.scrub');
  const moment = document.querySelector<HTMLElement>('.moment');
  if (!form || !moment) return;
  const slider = form.querySelector<HTMLInputElement>('#tick')!;
  const out = form.querySelector('output')!;
  const play = form.querySelector<HTMLButtonElement>('[data-part=play]')!;
  const canvas = document.createElement('canvas');
  canvas.setAttribute('aria-hidden', 'true');
  slider.before(canvas);
  form.classList.add('on');
  play.hidden = false;
  let states = '', lanes: number[] = [], shown = Number(slider.value), timer = 0, playing = 0, moving = false;

  const at = () => Number(slider.value);

  function say() {
    const text = `${at()} of ${states.length}`;
    out.textContent = text;
    slider.setAttribute('aria-valuetext', `Command ${text}, ${ends[states[at() - 1]]?.[0] ?? ''}`);
  }

  /** Takes over what the page knows of all commands. The slider stays at its command. */
  function read() {
    const place = moment!.querySelector<HTMLElement>('.place');
    if (!place || place.dataset.states === states) return;
    states = place.dataset.states ?? '';
    lanes = (place.dataset.lanes ?? '').split(' ').map(Number);
    slider.max = String(states.length);
    say();
    draw();
  }

  function colour(name: string): string {
    const probe = document.createElement('span');
    probe.className = name;
    form!.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  /** Draws one mark for each command, or for those that share a column the most important one. */
  function draw() {
    const width = canvas.clientWidth, height = canvas.clientHeight, n = states.length;
    if (!width || !n) return;
    const scale = devicePixelRatio;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const c = canvas.getContext('2d')!;
    c.scale(scale, scale);
    const wide = Math.max(1, Math.min(8, Math.floor(width / n) - 1));
    const columns = Math.min(n, Math.floor(width / (wide > 1 ? wide + 1 : 1)));
    const left = (x: number) => columns > 1 ? x * (width - wide) / (columns - 1) : 0;
    const marks: string[] = [];
    const order = Object.keys(ends);
    for (let i = 0; i < n; i++) {
      const x = Math.floor(i * columns / n);
      if (order.indexOf(states[i]) > order.indexOf(marks[x] ?? '')) marks[x] = states[i];
    }
    for (const [end, [, tall, name]] of Object.entries(ends)) {
      c.fillStyle = colour(name);
      marks.forEach((m, x) => {
        if (m !== end) return;
        const up = height - 4;
        c.fillRect(left(x), 4 + up * (1 - tall), wide, up * tall);
      });
    }
    c.fillStyle = colour('soft');
    for (const i of lanes) c.fillRect(left(Math.floor(i * columns / n)), 0, Math.max(wide, 2), 2);
  }

  /** Moves the page to the command of the slider. While one is loaded, only the last command that was asked for waits. */
  async function go() {
    clearTimeout(timer);
    if (moving) return;
    moving = true;
    while (shown !== at()) {
      const n = at();
      const query = new URLSearchParams(new FormData(form!) as unknown as Record<string, string>);
      if (!await tools.moveTo(`${form!.action}?${query}`, () => {}, true)) { location.assign(`${form!.action}?${query}`); break; }
      shown = n;
      read();
    }
    moving = false;
  }

  function to(n: number) {
    slider.value = String(n);
    moved();
  }

  function moved() {
    say();
    clearTimeout(timer);
    timer = window.setTimeout(go, restFor);
  }

  function stop() {
    clearInterval(playing);
    playing = 0;
    play.textContent = 'Play';
    play.setAttribute('aria-pressed', 'false');
  }

  slider.addEventListener('input', moved);
  slider.addEventListener('change', () => void go());
  slider.addEventListener('keydown', e => {
    if (e.key !== 'PageUp' && e.key !== 'PageDown') return;
    e.preventDefault();
    const i = at() - 1;
    to(1 + (e.key === 'PageUp' ? lanes.findLast(l => l < i) ?? 0 : lanes.find(l => l > i) ?? states.length - 1));
  });
  form.addEventListener('submit', e => { e.preventDefault(); void go(); });
  play.addEventListener('click', () => {
    if (playing) { stop(); return; }
    if (at() === states.length) to(1);
    play.textContent = 'Pause';
    play.setAttribute('aria-pressed', 'true');
    playing = window.setInterval(() => { if (at() < states.length) to(at() + 1); else stop(); }, playEvery);
  });
  moment.addEventListener('click', async e => {
    const link = (e.target as Element).closest<HTMLAnchorElement>('.place a[href], .lane a[href]');
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    const url = new URL(link.href), here = new URLSearchParams(new FormData(form) as unknown as Record<string, string>);
    if (url.pathname !== new URL(form.action).pathname || ['pin', 'vs'].some(p => (url.searchParams.get(p) ?? '') !== (here.get(p) ?? ''))) return;
    e.preventDefault();
    stop();
    if (!await tools.moveTo(link.href, () => {}, true)) { location.assign(link.href); return; }
    shown = Number(moment.querySelector<HTMLElement>('.place')!.dataset.place);
    read();
    slider.value = String(shown);
    say();
    if (link.closest('.lane')) form.scrollIntoView();
  });
  new MutationObserver(read).observe(moment, { childList: true });
  new ResizeObserver(draw).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  read();
}
