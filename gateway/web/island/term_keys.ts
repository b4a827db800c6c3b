// The keys that phones lack. Ctrl, Alt and Shift hold for the next key, and after a second press until a third.

export type Modifier = 'ctrl' | 'alt' | 'shift';
type Hold = 'off' | 'once' | 'locked';

/** Modifiers that are held without a finger. */
export class Sticky {
  private readonly holds: Record<Modifier, Hold> = { ctrl: 'off', alt: 'off', shift: 'off' };
  constructor(private readonly changed: (m: Modifier, h: Hold) => void) {}

  press(m: Modifier) {
    const next: Record<Hold, Hold> = { off: 'once', once: 'locked', locked: 'off' };
    this.set(m, next[this.holds[m]]);
  }

  private set(m: Modifier, h: Hold) {
    this.holds[m] = h;
    this.changed(m, h);
  }

  /** Ends modifiers that hold for one key, and returns those that held. */
  private use(): Record<Modifier, boolean> {
    const held = { ctrl: this.holds.ctrl !== 'off', alt: this.holds.alt !== 'off', shift: this.holds.shift !== 'off' };
    for (const m of ['ctrl', 'alt', 'shift'] as const) if (this.holds[m] === 'once') this.set(m, 'off');
    return held;
  }

  /** Returns what a typed character means with the modifiers. Longer input is left as it is. */
  typed(data: string): string {
    if ([...data].length !== 1) return data;
    const held = this.use();
    if (held.shift) data = data.toUpperCase();
    if (held.ctrl) data = control(data);
    return held.alt ? '\x1b' + data : data;
  }

  /** Returns the sequence of a key, such as "up", with the modifiers. */
  key(name: string, application: boolean): string {
    const held = this.use();
    const modifier = 1 + (held.shift ? 1 : 0) + (held.alt ? 2 : 0) + (held.ctrl ? 4 : 0);
    const arrow = arrows[name];
    if (arrow) return modifier > 1 ? `\x1b[1;${modifier}${arrow}` : `\x1b${application ? 'O' : '['}${arrow}`;
    const page = pages[name];
    if (page) return modifier > 1 ? `\x1b[${page};${modifier}~` : `\x1b[${page}~`;
    if (name === 'tab' && held.shift) return '\x1b[Z';
    const plain = held.ctrl ? control(keys[name] ?? name) : keys[name] ?? name;
    return held.alt ? '\x1b' + plain : plain;
  }
}

const arrows: Record<string, string> = { up: 'A', down: 'B', right: 'C', left: 'D', home: 'H', end: 'F' };
const pages: Record<string, string> = { pgup: '5', pgdn: '6' };
const keys: Record<string, string> = { esc: '\x1b', tab: '\t', break: '\x03', backtab: '\x1b[Z' };

/** Returns a character typed with Ctrl. */
function control(c: string): string {
  if (c === ' ') return '\0';
  if (c === '?') return '\x7f';
  const code = c.toUpperCase().charCodeAt(0);
  return code >= 0x40 && code <= 0x5f ? String.fromCharCode(code & 0x1f) : c;
}
