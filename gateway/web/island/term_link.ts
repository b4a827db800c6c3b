// The protocol ramus.term.1, which gateway/terminal/doc.go describes: one terminal over connections that come and go. Nothing here needs a
// page.

export interface Size { rows: number; cols: number }

/** A terminal as this viewer sees it. */
export interface State {
  id: string; title?: string; owner?: string; mine: boolean; size: Size; watchers: number; running: boolean; offset: number;
  away?: boolean; exit?: number; end?: string; stopped?: boolean;
}

/** A command that was committed. */
export interface Done { command: string; exit: number; commit?: string; offset: number; problem?: string }

export interface Problem { kind: string; detail: string; hint?: string; retry_after?: number; final?: boolean }

/** The error of a dial that is of no use to repeat. */
export class Refused extends Error {
  constructor(readonly problem: Problem) { super(problem.detail); }
}

/** A connection that is being made, and the ticket for it. */
export interface Dialed { socket: WebSocket; ticket?: string }

export type Phase = 'connecting' | 'open' | 'away' | 'ended';

export interface Options {
  terminal: string;
  watch: boolean;
  dial(): Promise<Dialed>;
  size(): Size;
  /** Takes output, in order and by whole characters. past is set for output from before the connection. shown is called when it was shown. */
  write(data: Uint8Array, past: boolean, shown: () => void): void;
  /** Clears the screen, and writes bytes that restore its modes. */
  clear(restore: Uint8Array): void;
  state(s: State): void;
  done(d: Done): void;
  /** Tells of a change of the connection. The problem says why it ended for good. */
  phase(p: Phase, tries: number, problem?: Problem): void;
  /** Tells of input that the program did not get. */
  dropped(detail: string): void;
}

const frame = {
  hello: 0x01, input: 0x02, size: 0x03, ack: 0x04, take: 0x05, ping: 0x06,
  state: 0x11, output: 0x12, reset: 0x13, mark: 0x14, pong: 0x15, problem: 0x1f,
};

export const protocol = 'ramus.term.1';
const maxInput = 32 << 10; // bytes of one frame
const maxQueue = 1 << 20; // bytes that wait for the network
const promptly = 100; // the longest pause before the first try
const firstPause = 500;
const maxPause = 15_000;
const soon = 60_000; // a server that restarts is there again by then
const soonPause = 1_500;
const openWithin = 10_000;
const pingEvery = 20_000;
const deadAfter = 45_000;
const probeFor = 2_000; // or as long as the connection took to open, if that is more
const steady = 5_000; // how long a connection lasts that always resets the pauses
const burst = 8; // short connections that reset the pauses; one is regained for every `steady` milliseconds of connections

const text = new TextDecoder();
const bytes = new TextEncoder();

function parse<T>(message: Uint8Array): T { return JSON.parse(text.decode(message.subarray(1))) as T; }

function offsetOf(message: Uint8Array): number {
  return Number(new DataView(message.buffer, message.byteOffset).getBigUint64(1));
}

/** Returns the number of bytes before the character that is cut at the end of the data, or all if none is. */
function lengthOfWhole(data: Uint8Array): number {
  for (let i = data.length - 1; i >= 0 && i >= data.length - 3; i--) {
    const c = data[i];
    if ((c & 0xc0) === 0x80) continue;
    const size = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    return i + size > data.length ? i : data.length;
  }
  return data.length;
}

/** One viewer of one terminal, which connects again after each loss. */
export class Link {
  /** The offset of the next byte of output; -1 before the first. */
  have = -1;
  private part = new Uint8Array(); // the bytes before have of a character that is not complete
  private socket?: WebSocket;
  private dialing = 0; // the number of the dial that is under way
  private dials = 0;
  private greeted = false; // the server has sent a state over this connection
  private past = 0; // output below this offset is older than the connection
  private last?: State;
  private retry = 0;
  private tries = 0;
  private opened = 0;
  private took = 0; // milliseconds from opened to the greeting
  private shortOnes = burst; // short connections that still reset the pauses
  private lost = 0; // when the tries began
  private heard = 0;
  private timer?: ReturnType<typeof setTimeout>;
  private beat?: ReturnType<typeof setInterval>;
  private left = true;
  private over = false;

  constructor(private readonly o: Options) {}

  /** Connects at once, and finds out whether a connection that seems open still is. */
  wake() {
    if (this.over) return;
    this.left = false;
    if (this.socket && this.greeted) {
      const before = this.heard;
      this.send(Uint8Array.of(frame.ping));
      const s = this.socket;
      setTimeout(() => { if (this.socket === s && this.heard === before) this.drop(); }, Math.max(probeFor, this.took));
      return;
    }
    this.tries = 0;
    void this.connect();
  }

  /** Ends the connection until the next wake. */
  leave() {
    this.left = true;
    this.dialing = 0;
    clearTimeout(this.timer);
    this.hangUp();
    if (!this.over) this.o.phase('away', 0);
  }

  /** Reports whether input reaches the server now. */
  get open(): boolean { return !!this.socket && this.greeted && this.socket.readyState === 1; }

  /** Sends input. Returns false if it was dropped. It is never kept for later. */
  input(data: Uint8Array): boolean {
    if (!this.open || this.o.watch || this.socket!.bufferedAmount + data.length > maxQueue) return false;
    for (let at = 0; at < data.length; at += maxInput) {
      const part = data.subarray(at, at + maxInput);
      const message = new Uint8Array(part.length + 1);
      message[0] = frame.input;
      message.set(part, 1);
      this.send(message);
    }
    return true;
  }

  /** Tells the server the size of this viewer's screen. */
  resize(s: Size) {
    const message = new DataView(new ArrayBuffer(5));
    message.setUint8(0, frame.size);
    message.setUint16(1, s.cols);
    message.setUint16(3, s.rows);
    if (this.open) this.send(new Uint8Array(message.buffer));
  }

  /** Makes this viewer the owner of the size. */
  take() { if (this.open) this.send(Uint8Array.of(frame.take)); }

  private async connect() {
    clearTimeout(this.timer);
    if (this.over || this.left || this.socket || this.dialing) return;
    const turn = this.dialing = ++this.dials;
    this.o.phase('connecting', this.tries);
    let made: Dialed;
    try {
      made = await this.o.dial();
    } catch (e) {
      if (turn !== this.dialing) return;
      this.dialing = 0;
      if (e instanceof Refused) this.finish(e.problem); else this.again();
      return;
    }
    if (turn !== this.dialing) { made.socket.close(); return; }
    this.dialing = 0;
    this.follow(made);
  }

  private follow({ socket, ticket }: Dialed) {
    this.socket = socket;
    this.greeted = false;
    this.retry = 0;
    this.heard = this.opened = Date.now();
    socket.binaryType = 'arraybuffer';
    const slow = setTimeout(() => { if (this.socket === socket && !this.greeted) this.drop(); }, openWithin);
    socket.onopen = () => {
      const size = this.o.size();
      const hello = bytes.encode('\x01' + JSON.stringify({ ticket, terminal: this.o.terminal, have: this.have, cols: size.cols, rows: size.rows,
        watch: this.o.watch || undefined }));
      socket.send(hello);
    };
    socket.onmessage = e => {
      if (this.socket !== socket) return;
      this.heard = Date.now();
      if (this.greeted) clearTimeout(slow);
      this.receive(new Uint8Array(e.data as ArrayBuffer));
    };
    socket.onclose = () => {
      clearTimeout(slow);
      if (this.socket !== socket) return;
      this.hangUp();
      this.again();
    };
    clearInterval(this.beat);
    this.beat = setInterval(() => {
      if (Date.now() - this.heard > deadAfter) this.drop();
      else if (this.open) this.send(Uint8Array.of(frame.ping));
    }, pingEvery);
  }

  /** Forgets the connection, without waiting for its end. */
  private hangUp() {
    clearInterval(this.beat);
    const s = this.socket;
    if (this.greeted) this.resetTries();
    this.socket = undefined;
    this.greeted = false;
    if (s) { s.onclose = s.onmessage = s.onopen = null; s.close(); }
  }

  /** Resets the pauses after a connection that worked, unless many short ones came before it, as from a server that ends them all. */
  private resetTries() {
    this.shortOnes = Math.min(burst, this.shortOnes + (Date.now() - this.opened) / steady);
    if (this.shortOnes < 1) return;
    this.shortOnes--;
    this.tries = 0;
  }

  private drop() {
    this.hangUp();
    this.again();
  }

  private again() {
    if (this.over || this.left) return;
    if (this.last && !this.last.running && this.have >= this.last.offset) { this.finish(); return; }
    // The first try is at once, but not that of all viewers of a server in the same moment.
    if (!this.tries) this.lost = Date.now();
    const longest = Date.now() - this.lost < soon ? soonPause : maxPause;
    const most = this.tries ? Math.min(longest, firstPause * 2 ** Math.min(this.tries - 1, 10)) : promptly;
    const pause = Math.max(this.retry * 1000, Math.random() * most);
    this.tries++;
    this.o.phase('away', this.tries);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.connect(), pause);
  }

  private finish(problem?: Problem) {
    this.over = true;
    clearTimeout(this.timer);
    this.hangUp();
    this.o.phase('ended', 0, problem);
  }

  private send(message: Uint8Array) {
    if (this.socket?.readyState === 1) this.socket.send(message);
  }

  private receive(message: Uint8Array) {
    switch (message[0]) {
      case frame.state: this.setState(parse<State>(message)); break;
      case frame.output: this.output(offsetOf(message), message.subarray(9)); break;
      case frame.reset: {
        const rest = message.subarray(9);
        this.have = offsetOf(message);
        this.part = new Uint8Array();
        this.o.clear(rest.subarray(rest.indexOf(0) + 1));
        break;
      }
      case frame.mark: this.o.done(parse<Done>(message)); break;
      case frame.problem: this.fault(parse<Problem>(message)); break;
    }
  }

  private setState(s: State) {
    this.last = s;
    if (!this.greeted) {
      this.greeted = true;
      this.took = Date.now() - this.opened;
      this.past = s.offset;
      this.o.state(s);
      this.o.phase('open', 0);
      return;
    }
    this.o.state(s);
  }

  private output(at: number, data: Uint8Array) {
    if (this.have < 0) this.have = at;
    if (at > this.have) { this.drop(); return; } // the connection has lost something
    data = data.subarray(this.have - at);
    const old = Math.min(Math.max(this.past - this.have, 0), data.length);
    if (old > 0) this.show(data.subarray(0, old), true);
    if (old < data.length) this.show(data.subarray(old), false);
  }

  private show(data: Uint8Array, past: boolean) {
    const end = this.have += data.length;
    const socket = this.socket;
    this.o.write(this.complete(data), past, () => {
      if (this.socket !== socket) return; // the next connection counts from what it asked for
      const message = new DataView(new ArrayBuffer(9));
      message.setUint8(0, frame.ack);
      message.setBigUint64(1, BigInt(end));
      this.send(new Uint8Array(message.buffer));
    });
  }

  /**
   * Returns the data with the part of a character before it, and without the one that is cut at its end. xterm.js 6.0 loses a character
   * that is cut after a byte 0x80, such as a dash or a quotation mark.
   */
  private complete(data: Uint8Array): Uint8Array {
    if (this.part.length) {
      const all = new Uint8Array(this.part.length + data.length);
      all.set(this.part);
      all.set(data, this.part.length);
      data = all;
    }
    const n = lengthOfWhole(data);
    this.part = data.slice(n);
    return data.subarray(0, n);
  }

  private fault(p: Problem) {
    if (p.kind === 'dropped') this.o.dropped(p.detail);
    else if (p.final) this.finish(p);
    else this.retry = Math.min(p.retry_after ?? 0, 60);
  }
}
