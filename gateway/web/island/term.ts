// The element r-term: the terminals of a workspace as tabs. The page has its frame, its buttons and the line console, which is shown without
// this file. The server's list of terminals is the truth.

import { ask, clean } from './term_ask';
import { Sticky, type Modifier } from './term_keys';
import { Link, protocol, Refused, type Dialed, type Done, type Phase, type Problem, type State } from './term_link';
import { admitStyles } from './term_policy';
import { Screen } from './term_screen';

interface Shell { id: string; label: string; running: boolean }

const prefix = document.documentElement.dataset.prefix ?? '';
const hiddenFor = 60_000;
const maxPaste = 1 << 20;
const within = 10_000;
const leastKeyboard = 100; // pixels; the bars of browsers, which come and go while a person scrolls, are lower

/** Asks the server. The error is a Refused if another try is of no use. */
async function request<T>(path: string, body?: object): Promise<T> {
  const answer = await fetch(prefix + path, {
    method: body ? 'POST' : 'GET', credentials: 'same-origin', redirect: 'manual', signal: AbortSignal.timeout(within),
    headers: { Accept: 'application/json', ...body && { 'Content-Type': 'application/json' } }, body: body && JSON.stringify(body),
  });
  if (answer.ok) return await answer.json() as T;
  if (answer.type === 'opaqueredirect') {
    throw new Refused({ kind: 'unauthorized', detail: 'your session has ended', hint: 'the terminal goes on, and is as you left it when you sign in' });
  }
  const said = await answer.json().catch(() => ({})) as Partial<Problem>;
  const p: Problem = { kind: said.kind ?? String(answer.status), detail: said.detail ?? `The server answers ${answer.status}.`, hint: said.hint };
  if (answer.status >= 500 || answer.status === 429) throw new Error(p.detail);
  throw new Refused(p);
}

/** A terminal that is open in this page. */
interface Tab {
  id: string;
  label: string;
  button: HTMLButtonElement;
  panel: HTMLElement;
  screen?: Screen;
  link?: Link;
  state?: State;
  done?: Done;
  phase: Phase;
  tries: number;
  problem?: Problem;
}

class RTerm extends HTMLElement {
  private readonly tabs: Tab[] = [];
  private active?: Tab;
  private away = 0;
  private seen = '';
  private key = ''; // of a terminal that is being opened
  private opening = false;
  private readonly sticky = new Sticky((m, h) => {
    const b = this.querySelector<HTMLElement>(`[data-hold="${m}"]`);
    b?.setAttribute('aria-pressed', String(h !== 'off'));
    if (b) b.dataset.held = h;
  });

  private get workspace() { return this.dataset.workspace!; }
  private get watch() { return 'watch' in this.dataset; }
  private element<E extends HTMLElement>(name: string) { return this.querySelector<E>(`[data-part="${name}"]`)!; }
  private path(rest: string) { return `/workspaces/${encodeURIComponent(this.workspace)}/${rest}`; }

  connectedCallback() {
    if (this.dataset.ready) return;
    this.dataset.ready = 'yes';
    admitStyles(this.nonce || this.getAttribute('nonce') || '');
    this.element('frame').hidden = false;
    this.querySelector<HTMLElement>('.lines')!.hidden = true;
    this.buttons();
    this.phone();
    new ResizeObserver(() => this.fit()).observe(this.element('screens'));
    // A terminal takes the key Tab. After it was left by F6, Tab leads past it, until the focus has left the frame or comes back.
    document.addEventListener('focusin', e => {
      const to = e.target as Node;
      const inside = this.element('frame').contains(to);
      for (const t of this.tabs) if (t.screen && (!inside || t.panel.contains(to))) t.screen.skipped = false;
    });
    addEventListener('online', () => this.wake());
    addEventListener('pageshow', () => this.wake());
    addEventListener('pagehide', () => this.leave());
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.away);
      if (document.hidden) this.away = window.setTimeout(() => this.leave(), hiddenFor);
      else this.wake();
    });
    void this.list(true);
  }

  /** Returns the text of the terminal that is shown. */
  text(): string { return this.active?.screen?.text() ?? ''; }

  private wake() {
    for (const t of this.tabs) t.link?.wake();
    void this.list(false);
  }

  private leave() { for (const t of this.tabs) t.link?.leave(); }

  // The list of terminals.

  /** Brings the tabs to the server's list. restore shows the tab that was shown last. */
  private async list(restore: boolean) {
    let all: { tabs: { kind: string; id: string; label: string; running: boolean }[] };
    try {
      all = await request(this.path('tabs'));
    } catch (e) {
      if (e instanceof Refused) this.refused(e.problem);
      else if (restore) setTimeout(() => void this.list(true), 1000 + Math.random() * 4000);
      return;
    }
    const shells: Shell[] = all.tabs.filter(t => t.kind === 'shell');
    for (const s of shells) this.add(s);
    for (const t of [...this.tabs]) if (!t.link && !shells.some(s => s.id === t.id)) this.forget(t);
    if (restore || !this.active) {
      const last = localStorage.getItem(`ramus.term.${this.workspace}`);
      const t = this.tabs.find(t => t.id === last) ?? this.tabs[0];
      if (t) this.show(t, false);
    }
    this.draw();
  }

  private add(s: Shell): Tab {
    const old = this.tabs.find(t => t.id === s.id);
    if (old) return old;
    const button = document.createElement('button');
    button.type = 'button';
    button.role = 'tab';
    button.id = `term-tab-${s.id}`;
    const panel = document.createElement('div');
    panel.className = 'term-screen';
    panel.role = 'tabpanel';
    panel.id = `term-panel-${s.id}`;
    panel.hidden = true;
    panel.setAttribute('aria-labelledby', button.id);
    button.setAttribute('aria-controls', panel.id);
    const t: Tab = { id: s.id, label: s.label, button, panel, phase: 'connecting', tries: 0 };
    button.addEventListener('click', () => this.show(t, true));
    button.addEventListener('auxclick', e => { if (e.button === 1) void this.close(t); });
    button.addEventListener('keydown', e => this.tabKey(t, e));
    this.tabs.push(t);
    this.element('tabs').append(button);
    this.element('screens').append(panel);
    return t;
  }

  private tabKey(t: Tab, e: KeyboardEvent) {
    const step: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1 };
    if (step[e.key]) {
      e.preventDefault();
      const next = this.tabs[(this.tabs.indexOf(t) + step[e.key] + this.tabs.length) % this.tabs.length];
      this.show(next, false);
      next.button.focus();
    } else if (e.key === 'Delete') {
      e.preventDefault();
      void this.close(t);
    }
  }

  private forget(t: Tab) {
    t.link?.leave();
    t.screen?.dispose();
    t.button.remove();
    t.panel.remove();
    const at = this.tabs.indexOf(t);
    this.tabs.splice(at, 1);
    if (this.active === t) {
      this.active = undefined;
      const next = this.tabs[Math.min(at, this.tabs.length - 1)];
      if (next) this.show(next, true);
    }
    this.draw();
  }

  private show(t: Tab, focus: boolean) {
    if (this.active && this.active !== t) {
      this.active.panel.hidden = true;
      this.active.screen?.rest();
    }
    this.active = t;
    t.panel.hidden = false;
    localStorage.setItem(`ramus.term.${this.workspace}`, t.id);
    if (!t.screen) this.begin(t);
    this.fit();
    requestAnimationFrame(() => requestAnimationFrame(() => void t.screen?.accelerate()));
    if (focus) t.screen?.term.focus();
    this.draw();
  }

  private begin(t: Tab) {
    const screen = new Screen(t.panel, {
      input: data => t.link?.input(data),
      typed: data => this.sticky.typed(data),
      open: uri => this.follow(uri),
      hover: uri => { t.panel.title = clean(uri, 300); },
      copied: text => void this.copy(text, `A program put ${text.length} characters on the clipboard.`),
      key: e => this.shortcut(e),
    }, localStorage.getItem('ramus.term.reader') === 'on');
    t.screen = screen;
    t.panel.addEventListener('paste', e => this.paste(t, e), { capture: true });
    t.link = new Link({
      terminal: t.id, watch: this.watch,
      dial: () => this.dial(t.id),
      size: () => screen.size(),
      write: (data, past, shown) => screen.write(data, past, shown),
      clear: restore => screen.clear(restore),
      state: s => this.setState(t, s),
      done: d => { t.done = d; this.draw(); },
      phase: (phase, tries, problem) => {
        Object.assign(t, { phase, tries });
        if (problem) t.problem = problem;
        this.draw();
      },
      dropped: detail => this.say(detail),
    });
    if (!document.hidden) t.link.wake();
  }

  private async dial(terminal: string): Promise<Dialed> {
    const { token } = await request<{ token: string }>('/terminal/token', { workspaceId: this.workspace, terminal });
    const base = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${prefix}`;
    return { ticket: token, socket: new WebSocket(base + this.path('shell'), protocol) };
  }

  private setState(t: Tab, s: State) {
    t.state = s;
    t.label = clean(s.title ?? '') || `Terminal ${s.id}`;
    t.screen!.mine = s.mine;
    this.fit();
    this.draw();
  }

  /** Fits the screen that is shown into its place. */
  private fit() {
    const t = this.active;
    if (!t?.screen || !t.screen.visible()) return;
    const s = t.state;
    t.screen.fit(s && !s.mine && s.owner ? s.size : undefined);
    const size = t.screen.size();
    t.link?.resize(size);
  }

  private async open() {
    if (this.opening) return;
    this.opening = true;
    this.key ||= Array.from(crypto.getRandomValues(new Uint8Array(16)), b => b.toString(16).padStart(2, '0')).join('');
    this.draw();
    try {
      const made = await request<{ id: string }>(this.path('terminals'), { key: this.key });
      this.key = '';
      const old = this.tabs.find(t => t.id === made.id && t.phase === 'ended'); // the server has forgotten it
      if (old) this.forget(old);
      this.show(this.add({ id: made.id, label: `Terminal ${made.id}`, running: true }), true);
    } catch (e) {
      if (e instanceof Refused) { this.key = ''; this.refused(e.problem); }
      else this.say('The server does not answer. Press again to try again.');
    }
    this.opening = false;
    this.draw();
  }

  private async close(t: Tab) {
    if (t.state?.running && !this.watch) {
      const atWork = t.screen?.busy || t.screen?.term.buffer.active.type === 'alternate';
      if (atWork && !await ask(`Close ${t.label}?`, 'A program is at work in it, and ends. Its changes are committed.', 'Close')) return;
    }
    if (!this.watch && t.problem?.kind !== 'not_found') {
      try {
        await request(this.path(`terminals/${encodeURIComponent(t.id)}/close`), {});
      } catch (e) {
        if (!(e instanceof Refused)) { this.say('The server does not answer. Close it again later.'); return; }
        if (e.problem.kind !== 'not_found') { this.refused(e.problem); return; }
      }
    }
    this.forget(t);
  }

  /** Opens a terminal in place of one that has ended. */
  private async restart() {
    const ended = this.active;
    await this.open();
    if (ended && this.active !== ended) await this.close(ended);
  }

  // What the frame shows.

  private draw() {
    const t = this.active;
    for (const tab of this.tabs) {
      tab.button.textContent = tab.label;
      tab.button.setAttribute('aria-selected', String(tab === t));
      tab.button.tabIndex = tab === t ? 0 : -1;
      tab.button.dataset.state = tab.phase === 'ended' || tab.state && !tab.state.running ? 'ended' : tab.phase;
    }
    this.dataset.state = t ? t.phase : 'none';
    this.element('none').hidden = !!t;
    this.element('tabs').hidden = !this.tabs.length;
    this.element<HTMLButtonElement>('open').disabled = this.element<HTMLButtonElement>('new').disabled = this.opening || this.watch;
    for (const name of ['find', 'copy', 'close']) this.element<HTMLButtonElement>(name).disabled = !t;
    this.status(t);
    this.banner(t);
    if (t?.screen) t.screen.term.options.disableStdin = this.watch || t.phase !== 'open' || t.state?.running === false || !!t.state?.away;
  }

  private status(t?: Tab) {
    const words: string[] = [];
    if (t?.state) {
      if (!t.state.mine && t.state.owner) words.push(`${clean(t.state.owner)} types`);
      if (t.state.watchers) words.push(t.state.watchers === 1 ? '1 other looks on' : `${t.state.watchers} others look on`);
    }
    if (t?.done) {
      words.push(t.done.problem ? `not committed: ${clean(t.done.problem, 200)}`
        : `${t.done.exit < 0 ? 'ended' : `exit ${t.done.exit}`}${t.done.commit ? ` · ${t.done.commit.slice(0, 10)}` : ''}`);
    }
    this.element('status').textContent = words.join(' · ');
    this.element('take').hidden = this.watch || !t?.state || t.state.mine || !t.state.running || t.phase !== 'open';
  }

  private banner(t?: Tab) {
    const b = this.element('banner');
    let words = '';
    let again = false;
    if (t?.problem) words = sentence(t.problem.detail) + (t.problem.hint ? ` ${sentence(t.problem.hint)}` : '');
    else if (t?.state && !t.state.running) {
      if (t.state.stopped) words = `This terminal was stopped.${t.done?.problem ? '' : ' Its changes are committed.'}`;
      else words = t.state.end ? `The program has ended: ${clean(t.state.end, 300)}` : `The program has ended${t.state.exit === undefined ? '' : ` with exit ${t.state.exit}`}.`;
      again = !this.watch;
    } else if (t?.phase === 'away' && t.tries > 0) words = 'No connection. What you type now is not sent. The terminal goes on, and comes back by itself.';
    else if (t?.phase === 'open' && t.state?.away) words = 'The server is finding the program again. What you type now is not sent.';
    if (this.element('words').textContent !== words) this.element('words').textContent = words;
    b.hidden = !words;
    this.element('again').hidden = !again;
    this.element('in').hidden = t?.problem?.kind !== 'unauthorized';
  }

  /** Shows a problem that no repetition solves. */
  private refused(p: Problem) {
    if (this.active) { this.active.problem = p; this.draw(); return; }
    this.element('words').textContent = sentence(p.detail);
    this.element('banner').hidden = false;
    this.element('in').hidden = p.kind !== 'unauthorized';
  }

  /** Shows a short message for a while. */
  private say(words: string) {
    const note = this.element('note');
    note.textContent = words;
    this.seen = words;
    setTimeout(() => { if (this.seen === words) note.textContent = ''; }, 6000);
  }

  // Copy, paste, links and keys.

  private async copy(text: string, said: string) {
    try {
      await navigator.clipboard.writeText(text);
      this.say(said);
    } catch {
      this.say('The browser does not allow this page to copy. Press Ctrl C with the selection, or use https.');
    }
  }

  private copySelection() {
    const text = this.active?.screen?.term.getSelection() || this.text();
    if (text) void this.copy(text, 'Copied.');
  }

  private paste(t: Tab, e: ClipboardEvent) {
    const text = e.clipboardData?.getData('text/plain') ?? '';
    const lines = text.trimEnd().split(/\r\n|\r|\n/).length;
    if (text.length <= maxPaste && (lines < 2 || t.screen!.term.modes.bracketedPasteMode)) return;
    e.preventDefault();
    e.stopPropagation();
    if (text.length > maxPaste) { this.say('This is too long to paste: more than 1 MiB.'); return; }
    void ask(`Paste ${lines} lines?`, 'The program takes each line as a command at once.', 'Paste', text.slice(0, 4000))
      .then(yes => { if (yes) t.screen!.term.paste(text); t.screen!.term.focus(); });
  }

  private follow(uri: string) {
    let u: URL;
    try { u = new URL(uri); } catch { return; }
    if (u.protocol !== 'http:' && u.protocol !== 'https:') return;
    const local = ['localhost', '127.0.0.1', '0.0.0.0', '[::1]'].includes(u.hostname) && u.host !== location.host;
    window.open(local ? `${prefix}/workspaces/${encodeURIComponent(this.workspace)}?pane=preview` : u.href, '_blank', 'noopener,noreferrer');
  }

  /** Puts the selection into the message of the conversation. */
  private quote() {
    const area = document.querySelector<HTMLTextAreaElement>('form[data-talk] textarea');
    const text = this.active?.screen?.term.getSelection();
    if (!area || !text) { this.say('Select something first.'); return; }
    let fence = '```';
    while (text.includes(fence)) fence += '`';
    area.value += `${area.value && !area.value.endsWith('\n') ? '\n' : ''}${fence}\n${text.trimEnd()}\n${fence}\n`;
    area.dispatchEvent(new Event('input', { bubbles: true }));
    if (area.getClientRects().length) area.focus(); else this.say('It is in your message in the conversation.');
  }

  /** Handles a key that is not the program's. */
  private shortcut(e: KeyboardEvent): boolean {
    const t = this.active!;
    if (e.key === 'F6' && !e.shiftKey || e.key === 'Escape' && e.ctrlKey && e.shiftKey) {
      e.preventDefault();
      t.screen!.skipped = true;
      t.button.focus();
      return true;
    }
    const letter = e.key.toLowerCase();
    const selected = t.screen!.term.hasSelection();
    if (e.ctrlKey && !e.altKey && letter === 'c' && (e.shiftKey || selected)) {
      e.preventDefault();
      if (selected) this.copySelection();
      if (!e.shiftKey) t.screen!.term.clearSelection();
      return true;
    }
    if (e.ctrlKey && e.shiftKey && letter === 'v') return true; // the browser pastes
    if (e.ctrlKey && e.shiftKey && letter === 'f') {
      e.preventDefault();
      this.toggleFind();
      return true;
    }
    return false;
  }

  private toggleFind() {
    const form = this.element('finder');
    form.hidden = !form.hidden;
    this.element('find').setAttribute('aria-pressed', String(!form.hidden));
    if (!form.hidden) { this.element('words-to-find').focus(); return; }
    this.active?.screen?.endFind();
    this.active?.screen?.term.focus();
  }

  private async find(words: string, back: boolean) {
    try {
      if (!await this.active?.screen?.find(words, back)) this.say('Not found.');
    } catch {
      this.say('The server does not answer. Press Enter to try again.');
    }
  }

  private buttons() {
    const on = (name: string, act: () => void) => this.element(name).addEventListener('click', act);
    on('new', () => void this.open());
    on('open', () => void this.open());
    on('again', () => void this.restart());
    on('close', () => { if (this.active) void this.close(this.active); });
    on('copy', () => this.copySelection());
    on('quote', () => this.quote());
    on('find', () => this.toggleFind());
    on('take', () => { this.active?.link?.take(); this.active?.screen?.term.focus(); });
    on('reader', () => {
      const on = localStorage.getItem('ramus.term.reader') !== 'on';
      localStorage.setItem('ramus.term.reader', on ? 'on' : 'off');
      for (const t of this.tabs) if (t.screen) t.screen.term.options.screenReaderMode = on;
      this.element('reader').setAttribute('aria-pressed', String(on));
    });
    this.element('reader').setAttribute('aria-pressed', String(localStorage.getItem('ramus.term.reader') === 'on'));
    const words = this.element<HTMLInputElement>('words-to-find');
    words.addEventListener('keydown', e => {
      if (e.key === 'Escape') { e.preventDefault(); this.toggleFind(); }
      if (e.key !== 'Enter') return;
      e.preventDefault();
      if (words.value) void this.find(words.value, e.shiftKey);
    });
  }

  /** Sets up the keys of phones and the line for long input. */
  private phone() {
    for (const b of this.querySelectorAll<HTMLElement>('.term-keys button')) {
      b.addEventListener('pointerdown', e => e.preventDefault()); // keeps the focus, and so the keyboard
      b.addEventListener('click', () => this.press(b));
    }
    const line = this.element<HTMLFormElement>('line');
    line.addEventListener('submit', e => {
      e.preventDefault();
      const input = line.querySelector('input')!;
      if (this.active?.link?.input(new TextEncoder().encode(input.value + '\r'))) input.value = '';
      else this.say('There is no connection. The line was not sent.');
    });
    const view = window.visualViewport;
    if (!view) return;
    const room = () => this.style.setProperty('--room', `${Math.round(view.height)}px`);
    room();
    const place = () => {
      if (!matchMedia('(pointer: coarse)').matches || !this.querySelector('.term-screens :focus, .term-line :focus')) return;
      this.element('frame').scrollIntoView({ block: 'start' });
    };
    let { width, height } = view;
    view.addEventListener('resize', () => {
      room();
      if (view.scale !== 1 || view.width === width && Math.abs(view.height - height) < leastKeyboard) return;
      ({ width, height } = view);
      place();
    });
    for (const part of ['screens', 'line']) this.element(part).addEventListener('focusin', place);
  }

  private press(b: HTMLElement) {
    const t = this.active;
    if (b.dataset.hold) { this.sticky.press(b.dataset.hold as Modifier); return; }
    if ('line' in b.dataset) {
      const line = this.element('line');
      line.hidden = !line.hidden;
      b.setAttribute('aria-pressed', String(!line.hidden));
      if (line.hidden) t?.screen?.term.focus(); else line.querySelector('input')!.focus();
      return;
    }
    if (!t?.screen) return;
    const data = this.sticky.key(b.dataset.press!, t.screen.term.modes.applicationCursorKeysMode);
    if (t.phase === 'open') t.link?.input(new TextEncoder().encode(data));
  }
}

/** Returns words with a capital letter and a full stop. */
function sentence(words: string): string {
  const line = clean(words, 400);
  return line && line[0].toUpperCase() + line.slice(1) + (/[.!?…]$/.test(line) ? '' : '.');
}

customElements.define('r-term', RTerm);
