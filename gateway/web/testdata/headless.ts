// Shows the output of a terminal over a connection that is cut again and again, and compares the screen with one that had the same bytes at
// once. Arguments: the address of the socket, and the file with the bytes.

import { readFileSync } from 'node:fs';
import { Terminal } from '@xterm/headless';
import { Link, protocol } from '../island/term_link';

const [, , url, file] = process.argv;
const whole = readFileSync(file);
const options = { allowProposedApi: true, cols: 80, rows: 24, scrollback: 2000 };

const every = 10_000; // bytes between two looks at the screen

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

/** Writes bytes of the stream, and looks at the screen after every part of it. */
function write(t: Terminal, looks: string[], data: Uint8Array, at: number, shown: () => void) {
  while (at % every + data.length >= every) {
    const n = every - at % every;
    t.write(data.subarray(0, n), () => looks.push(seen(t, false).join('\n')));
    data = data.subarray(n);
    at += n;
  }
  t.write(data, shown);
}

const cut = new Terminal(options);
const looks: string[] = [];
let connections = 0;
let resets = 0;

function compare() {
  const uncut = new Terminal(options);
  const should: string[] = [];
  write(uncut, should, whole, 0, () => {
    const got = [...looks, ...seen(cut, true)];
    const want = [...should, ...seen(uncut, true)];
    const at = want.findIndex((line, i) => line !== got[i]);
    console.log(JSON.stringify({ bytes: link.have, connections, resets, looks: should.length, lines: want.length,
      difference: at < 0 && got.length === want.length ? '' : `line ${at}\n${want[at]}\n${got[at]}` }));
    process.exit(0);
  });
}

const link = new Link({
  terminal: '1', watch: false,
  dial: async () => { connections++; return { socket: new WebSocket(url, protocol) }; },
  size: () => ({ rows: 24, cols: 80 }),
  write: (data, _, shown) => write(cut, looks, data, link.have - data.length,
    () => { shown(); if (link.have === whole.length && data.length) settle(); }),
  clear: restore => { resets++; cut.write(Buffer.concat([Buffer.from('\x18\x1bc'), restore])); },
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
  cut.write('', () => { link.leave(); compare(); });
}

link.wake();
