// Wakes a link whose connection took 50 ms to open, one whose connection took 5 s, and one whose server answers. Prints the result of each.

import { Link } from '../island/term_link';

let now = 1_000_000;
let timers: { act: () => void; at: number }[] = [];
Date.now = () => now;
globalThis.setInterval = (() => 0) as never;
globalThis.setTimeout = ((act: () => void, wait: number) => { timers.push({ act, at: now + wait }); return 0; }) as never;
globalThis.clearTimeout = (() => {}) as never;

const state = { id: '1', mine: true, size: { rows: 24, cols: 80 }, watchers: 0, running: true, offset: 0 };
const greeting = new TextEncoder().encode('\x11' + JSON.stringify(state));

/** Returns when a link drops its connection after a wake, if it does. */
async function probe(opensAfter: number, answersAfter: number): Promise<string> {
  timers = [];
  let socket!: WebSocket;
  let dropped = false;
  const receive = (message: Uint8Array) => socket.onmessage!({ data: message.buffer } as MessageEvent);
  const link = new Link({
    terminal: '1', watch: false,
    dial: async () => ({ socket: socket = { readyState: 1, send() {}, close() { dropped = true; } } as unknown as WebSocket }),
    size: () => state.size,
    write: () => {}, clear: () => {}, state: () => {}, done: () => {}, phase: () => {}, dropped: () => {},
  });
  link.wake();
  while (!socket?.onopen) await Promise.resolve();
  now += opensAfter;
  socket.onopen(new Event('open'));
  receive(greeting.slice());
  timers = []; // that of the greeting
  now += 60_000;
  link.wake();
  const from = now;
  if (answersAfter) timers.push({ act: () => receive(Uint8Array.of(0x15)), at: now + answersAfter });
  for (const t of timers.sort((a, b) => a.at - b.at)) {
    now = t.at;
    t.act();
    if (dropped) return `dropped after ${now - from}`;
  }
  return 'kept';
}

void (async () => console.log([await probe(50, 0), await probe(5000, 0), await probe(5000, 3000)].join(', ')))();
