// Cuts a connection after each greeting, at once, then after a while and then at once for long. Prints the longest pause before each try, in
// milliseconds.

import { Link } from '../island/term_link';

const pauses: number[] = [];
let now = 1_000_000;
let away = false; // the next timer is a pause
Date.now = () => now;
Math.random = () => 1;
globalThis.setInterval = (() => 0) as never;
globalThis.setTimeout = ((act: () => void, wait: number) => {
  if (away) {
    away = false;
    pauses.push(wait);
    now += wait;
    queueMicrotask(act);
  }
  return 0;
}) as never;

const state = { id: '1', mine: true, size: { rows: 24, cols: 80 }, watchers: 0, running: true, offset: 0 };
const greeting = new TextEncoder().encode('\x11' + JSON.stringify(state));
const lasts = [...Array<number>(12).fill(50), 6000, 6000, ...Array<number>(60).fill(0)];

const link = new Link({
  terminal: '1', watch: false,
  dial: async () => {
    const socket = { readyState: 1, send() {}, close() {} } as unknown as WebSocket;
    setImmediate(() => {
      socket.onopen!(new Event('open'));
      socket.onmessage!({ data: greeting.slice().buffer } as MessageEvent);
      const last = lasts.shift();
      if (last === undefined) {
        console.log(JSON.stringify(pauses));
        process.exit(0);
      }
      now += last;
      socket.onclose!({} as CloseEvent);
    });
    return { socket };
  },
  size: () => state.size,
  write: () => {},
  clear: () => {},
  state: () => {},
  done: () => {},
  phase: p => { away = p === 'away'; },
  dropped: () => {},
});
link.wake();
