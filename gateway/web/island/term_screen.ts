// The screen of one terminal: xterm, with the safe ones of the sequences that a program prints.

import { Terminal, type IDisposable } from '@xterm/xterm';
import { FitAddon } from '@xterm/addon-fit';
import type { SearchAddon } from '@xterm/addon-search';
import { Unicode11Addon } from '@xterm/addon-unicode11';
import { WebLinksAddon } from '@xterm/addon-web-links';
import type { Size } from './term_link';

export interface ScreenOptions {
  /** Takes input, and the terminal's answers to a program. */
  input(data: Uint8Array): void;
  /** Returns what typed characters mean with the modifiers that are held. */
  typed(data: string): string;
  /** Opens a link that a person pressed. */
  open(uri: string): void;
  /** Tells of the target of a link under the pointer; empty for none. */
  hover(uri: string): void;
  /** Puts text on the clipboard for a program. */
  copied(text: string): void;
  /** Returns true for a key that is not the program's. */
  key(e: KeyboardEvent): boolean;
}

const maxClipboard = 64 << 10; // bytes that a program may put on the clipboard
const maxSide = 1000;
const bytes = new TextEncoder();
const reports = /^\x1b\[(?:[IO]$|<[\d;]+[mM]$|M)/; // of the focus and the mouse

export class Screen {
  readonly term: Terminal;
  /** Set if this viewer is the owner. Only the owner's screen answers questions of programs. */
  mine = false;
  /** Set while a command is at work, as far as the shell says. */
  busy = false;
  private readonly fitter = new FitAddon();
  private finder?: SearchAddon; // once something was looked for
  private readonly watching: IDisposable[] = [];
  private past = false; // the output that is parsed now was printed before the connection
  private gl?: IDisposable;
  private grid?: Size; // of the owner, if it is somebody else

  constructor(private readonly host: HTMLElement, private readonly o: ScreenOptions, readerMode: boolean) {
    const look = getComputedStyle(host);
    this.term = new Terminal({
      allowProposedApi: true, cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches, fontFamily: look.fontFamily,
      fontSize: parseFloat(look.fontSize) || 13, lineHeight: 1.2, minimumContrastRatio: 4.5, scrollback: 10_000, screenReaderMode: readerMode,
      theme: themeOf(host), macOptionIsMeta: true,
      linkHandler: { activate: (_, uri) => o.open(uri), hover: (_, uri) => o.hover(uri), leave: () => o.hover(''), allowNonHttpProtocols: false },
    });
    const t = this.term;
    t.loadAddon(this.fitter);
    t.loadAddon(new Unicode11Addon());
    t.unicode.activeVersion = '11';
    t.loadAddon(new WebLinksAddon((_, uri) => o.open(uri), { hover: (_, uri) => o.hover(uri), leave: () => o.hover('') }));
    this.answer();
    t.onData(data => { if (this.mine || !reports.test(data)) o.input(bytes.encode(o.typed(data))); });
    t.onBinary(data => { if (this.mine) o.input(Uint8Array.from(data, c => c.charCodeAt(0))); });
    t.attachCustomKeyEventHandler(e => e.type !== 'keydown' || !o.key(e));
    t.open(host);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const paint = () => { t.options.theme = themeOf(host); };
    dark.addEventListener('change', paint);
    this.watching.push({ dispose: () => dark.removeEventListener('change', paint) });
  }

  /** Has the screen leave questions of programs to the owner's screen, and to the time when they were asked. */
  private answer() {
    const p = this.term.parser;
    const quiet = () => this.past || !this.mine;
    for (const id of [{ final: 'c' }, { prefix: '>', final: 'c' }, { prefix: '=', final: 'c' }, { final: 'n' }, { prefix: '?', final: 'n' },
      { intermediates: '$', final: 'p' }, { prefix: '?', intermediates: '$', final: 'p' }, { prefix: '>', final: 'q' },
      { prefix: '?', final: 'u' }]) p.registerCsiHandler(id, quiet);
    p.registerCsiHandler({ final: 't' }, params => quiet() && [11, 13, 14, 15, 16, 18, 19, 20, 21].includes(params[0] as number));
    p.registerDcsHandler({ intermediates: '$', final: 'q' }, quiet);
    for (const n of [4, 10, 11, 12]) p.registerOscHandler(n, data => data.includes('?') && quiet());
    p.registerOscHandler(52, data => { this.clipboard(data); return true; });
    for (const n of [133, 633]) {
      p.registerOscHandler(n, data => {
        if (data[0] === 'C') this.busy = true;
        else if (data[0] === 'D' || data[0] === 'A') this.busy = false;
        return false;
      });
    }
  }

  /** Puts text of a program on the clipboard. The clipboard is never read for a program. */
  private clipboard(data: string) {
    const encoded = data.slice(data.indexOf(';') + 1);
    if (this.past || encoded === '?' || encoded.length > maxClipboard * 4 / 3 + 4) return;
    try {
      const text = new TextDecoder().decode(Uint8Array.from(atob(encoded), c => c.charCodeAt(0)));
      if (text) this.o.copied(text);
    } catch { /* it is not base64 */ }
  }

  write(data: Uint8Array, past: boolean, shown: () => void) {
    // An empty write before, so that the flag changes when this data is parsed and not now.
    this.term.write(new Uint8Array(), () => { this.past = past; });
    this.term.write(data, shown);
  }

  /** Clears the screen in the order of the output. CAN ends a sequence that was cut. */
  clear(restore: Uint8Array) {
    this.busy = false;
    this.term.write('\x18\x1bc');
    this.write(restore, true, () => {});
  }

  /** Draws by WebGL if the browser can. The other renderer needs nothing. */
  async accelerate() {
    if (this.gl) return;
    try {
      const { WebglAddon } = await import('@xterm/addon-webgl');
      if (this.gl || !this.visible()) return;
      const gl = new WebglAddon();
      gl.onContextLoss(() => { gl.dispose(); this.gl = undefined; });
      this.term.loadAddon(gl);
      this.gl = gl;
    } catch { /* the other renderer stays */ }
  }

  /** Gives the resources of a screen that is not shown back. */
  rest() {
    this.gl?.dispose();
    this.gl = undefined;
  }

  /** Whether the key Tab leads past the screen. */
  set skipped(yes: boolean) { if (this.term.textarea) this.term.textarea.tabIndex = yes ? -1 : 0; }

  visible(): boolean { return this.host.getClientRects().length > 0; }

  /** Returns the size that fits the place of the screen. */
  size(): Size {
    const d = this.fitter.proposeDimensions();
    if (!d || !(d.cols > 0) || !(d.rows > 0)) return { rows: this.term.rows, cols: this.term.cols };
    return { rows: Math.min(d.rows, maxSide), cols: Math.min(d.cols, maxSide) };
  }

  /** Takes the size of the place, or shows the grid of another owner as large as there is room. */
  fit(grid?: Size) {
    this.grid = grid;
    if (!this.visible()) return;
    const size = grid && grid.rows > 0 && grid.cols > 0 ? grid : this.size();
    if (size.rows !== this.term.rows || size.cols !== this.term.cols) this.term.resize(size.cols, size.rows);
    const e = this.term.element!;
    const drawn = e.querySelector<HTMLElement>('.xterm-screen');
    const scale = grid && drawn ? Math.min(1, this.host.clientWidth / drawn.offsetWidth, this.host.clientHeight / drawn.offsetHeight) : 1;
    e.style.transform = scale < 1 ? `scale(${scale})` : '';
  }

  refit() { this.fit(this.grid); }

  /** Selects the next place of some words, and reports whether there is one. */
  async find(words: string, back = false): Promise<boolean> {
    const { SearchAddon } = await import('@xterm/addon-search');
    if (!this.finder) this.term.loadAddon(this.finder = new SearchAddon());
    return back ? this.finder.findPrevious(words) : this.finder.findNext(words);
  }

  endFind() { this.finder?.clearDecorations(); }

  /** Returns the text of the screen and of the lines above it. */
  text(): string {
    const b = this.term.buffer.active;
    let all = '';
    for (let y = 0; y < b.length; y++) {
      const line = b.getLine(y)!;
      all += (y && !line.isWrapped ? '\n' : '') + line.translateToString(true);
    }
    return all.trimEnd();
  }

  dispose() {
    for (const w of this.watching) w.dispose();
    this.rest();
    this.term.dispose();
  }
}

const colours = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];

/** Returns the colours of the style sheet, as they are in the theme of the page. */
function themeOf(host: HTMLElement): Record<string, string> {
  const probes = document.createElement('div');
  host.append(probes);
  const colour = (name: string) => { // each has an element of its own, whose colour is no transition from another one
    const probe = document.createElement('b');
    probe.style.color = `var(--term-${name})`;
    probes.append(probe);
    return getComputedStyle(probe).color;
  };
  const theme: Record<string, string> = { background: colour('bg'), foreground: colour('text'), cursor: colour('cursor'),
    cursorAccent: colour('bg'), selectionBackground: colour('selection') };
  for (const c of colours) {
    theme[c] = colour(c);
    theme['bright' + c[0].toUpperCase() + c.slice(1)] = colour('bright-' + c);
  }
  probes.remove();
  return theme;
}
