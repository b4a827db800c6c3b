// Shows the output of a terminal over a connection that is cut again and again, and compares the screen with one that had the same bytes at
// once. Arguments: the address of the socket, and the file with the bytes.

import { readFileSync } from 'node:fs';
import { Terminal } from '@xterm/headless';
import { Link, protocol } from '../island/term_link';

const [, , url, file] = process.argv;
const whole = readFileSync(file);
const options = { allowProposedApi: true, cols: 80, rows: 24, scrollback: 2000 };

const every = 10_000; // bytes between two looks at the screen, or some more if a character would be cut

/** Returns everything that can be seen of a screen, a line of text for each line, with the lines that were scrolled away if all is set. */
function seen(t: Terminal, all: boolean): string[] {
  const lines: string[] = [];
  for (const b of all ? [t.buffer.normal, t.buffer.alternate] : [t.buffer.active]) {
    lines.push(`${b.type} ${b.cursorX} ${b.cursorY} ${b.baseY} ${b.length}`);
    for (let y = all ? 0 : b.baseY; y < b.length; y++) {
      const line = b.getLine(y)!;
      let text = line.isWrapped ? 'w' : ' ';
      for (let x = 0; x < line.length; x++) {
        const c = line.getCell(x)!;
        text += `${c.getChars()}|${[c.getWidth(), c.getFgColorMode(), c.getFgColor(), c.getBgColorMode(), c.getBgColor(), c.isBold(), c.isDim(),
          c.isItalic(), c.isUnderline(), c.isBlink(), c.isInverse(), c.isInvisible(), c.isStrikethrough(), c.isOverline()].join()};`;
      }
      lines.push(text);
    }
  }
  lines.push(`${t.buffer.active.type} ${JSON.stringify(t.modes)}`);
  return lines;
}

/** Returns the offset of the next look after one, at the beginning of a character. */
function nextLook(at: number): number {
  let next = (Math.floor(at / every) + 1) * every;
  while ((whole[next] & 0xc0) === 0x80) next++;
  return next;
}

/** A terminal that is looked at after every part of the stream. */
class Watched {
  readonly terminal = new Terminal(options);
  readonly looks: string[] = [];
  private at = 0; // bytes that were written
  private next = nextLook(0);

  write(data: Uint8Array, shown: () => void) {
    const end = this.at + data.length;
    while (this.next <= end) {
      const n = this.next - this.at;
      this.terminal.write(data.subarray(0, n), () => this.looks.push(seen(this.terminal, false).join('\n')));
      data = data.subarray(n);
      this.at = this.next;
      this.next = nextLook(this.next);
    }
    this.at = end;
    this.terminal.write(data, shown);
  }
}

const cut = new Watched();
let connections = 0;
let resets = 0;

function compare() {
  const uncut = new Watched();
  uncut.write(whole, () => {
    const got = [...cut.looks, ...seen(cut.terminal, true)];
    const want = [...uncut.looks, ...seen(uncut.terminal, true)];
    const at = want.findIndex((line, i) => line !== got[i]);
    const result = JSON.stringify({ bytes: link.have, connections, resets, looks: uncut.looks.length, lines: want.length,
      difference: at < 0 && got.length === want.length ? '' : `line ${at}\n${want[at]}\n${got[at]}` });
    process.stdout.write(result, () => process.exit(0));
  });
}

/** Dials. The WebSocket of Node.js sends only an error, and not a close event, if the connection is cut before it is open. */
async function dial() {
  connections++;
  const socket = new WebSocket(url, protocol);
  socket.addEventListener('error', () => socket.dispatchEvent(new Event('close')));
  return { socket };
}

const link = new Link({
  terminal: '1', watch: false, dial,
  size: () => ({ rows: 24, cols: 80 }),
  write: (data, _, shown) => cut.write(data, () => { shown(); if (link.have === whole.length) settle(); }),
  clear: restore => { resets++; cut.terminal.write(Buffer.concat([Buffer.from('\x18\x1bc'), restore])); },
  state: () => {},
  done: () => {},
  phase: p => { if (p === 'away') setTimeout(() => link.wake(), 0); }, // as a browser that is online again
  dropped: () => {},
});

let settled = false;

/** Compares when all that was received is shown. */
function settle() {
  if (settled) return;
  settled = true;
  cut.terminal.write('', () => { link.leave(); compare(); });
}

link.wake();
