package webtest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// viewer is a viewer of a terminal in a page, by the protocol ramus.term.1 of gateway/terminal. __term has what it
// got so far. __term.open(workspace) opens a socket with a ticket, and goes on at the byte where the last socket
// ended.
const viewer = `window.__term ??= {
	text: '', at: 0, name: 'new', marks: [], faults: [], running: true, socket: null,
	decoder: new TextDecoder(),
	async open(workspace) {
		const r = await fetch('/terminal/token', {method: 'POST', headers: {'Content-Type': 'application/json'},
			body: JSON.stringify({workspaceId: workspace})});
		if (!r.ok) throw new Error(await r.text());
		const {token} = await r.json();
		const s = new WebSocket(location.origin.replace('http', 'ws') + '/workspaces/' + workspace + '/shell', 'ramus.term.1');
		s.binaryType = 'arraybuffer';
		await new Promise((ok, no) => { s.onopen = ok; s.onerror = () => no(new Error('the socket does not open')); });
		s.onerror = null;
		s.onclose = () => { if (this.socket === s) this.socket = null; };
		s.onmessage = e => this.take(s, e.data);
		this.socket = s;
		const hello = {ticket: token, terminal: this.name, have: this.at, cols: 100, rows: 30};
		this.send(1, new TextEncoder().encode(JSON.stringify(hello)));
	},
	send(type, bytes) {
		const all = new Uint8Array(1 + bytes.length);
		all[0] = type;
		all.set(bytes, 1);
		this.socket.send(all);
	},
	type(text) { this.send(2, new TextEncoder().encode(text)); },
	take(s, data) {
		const view = new DataView(data), rest = new Uint8Array(data, 1), type = view.getUint8(0);
		const json = () => JSON.parse(new TextDecoder().decode(rest));
		if (type === 0x11) { const state = json(); this.name = state.id; this.running = state.running; }
		else if (type === 0x12) {
			const offset = Number(view.getBigUint64(1)), bytes = new Uint8Array(data, 9);
			if (offset !== this.at) this.faults.push('byte ' + offset + ' came, and byte ' + this.at + ' was next');
			this.at = offset + bytes.length;
			this.text += this.decoder.decode(bytes, {stream: true});
			const ack = new DataView(new ArrayBuffer(8));
			ack.setBigUint64(0, BigInt(this.at));
			if (s.readyState === 1) this.send(4, new Uint8Array(ack.buffer));
		} else if (type === 0x13) {
			if (this.at > 0) this.faults.push('a reset at byte ' + view.getBigUint64(1));
			this.at = Number(view.getBigUint64(1));
		} else if (type === 0x14) this.marks.push(json());
		else if (type === 0x1f) this.faults.push(json().detail);
	},
}; 0`

// counts is the number of lines that the terminal counts, and countLine the command that counts.
const (
	counts    = 120
	countLine = `for i in $(seq 120); do echo "count $i"; sleep 0.05; done; echo counted >counted.txt`
)

var counted = regexp.MustCompile(`count (\d+)\r\n`)

// openTerminal is the script that opens a socket of a viewer.
func (s *Story) openTerminal() string {
	return fmt.Sprintf(`__term.open(%s).then(() => 0)`, Quote(s.id()))
}

// OpenTerminal opens a terminal in the page, and waits for the prompt of its shell. The viewer is __term.
func (s *Story) OpenTerminal() {
	s.Site.T.Helper()
	s.Page.Eval(viewer, nil)
	s.Page.Eval(s.openTerminal(), nil)
	s.Page.Wait(`__term.text.includes(':/work')`)
}

// countByProtocol opens a terminal by its protocol, and kills the server while a command in it counts. The next server goes on,
// and the terminal shows each line once. The command is a commit.
func (s *Story) countByProtocol() {
	s.Site.T.Helper()
	p := s.Page
	s.OpenTerminal()
	had := len(s.commits())
	p.Eval(`__term.type(`+Quote(countLine+"\n")+`); 0`, nil)
	p.Wait(`__term.text.includes('count 20\r\n')`)
	var at int
	killed := s.Site.Kill()
	p.Wait(`__term.socket === null`)
	p.Eval(`__term.at`, &at)
	s.Site.Serve()
	p.Eval(s.openTerminal(), nil)
	p.Wait(fmt.Sprintf(`__term.text.includes('count %d\r\n')`, counts))
	s.wait("a commit of the command in the terminal", func() bool { return len(s.commits()) == had+1 })
	var got struct {
		Text   string
		Faults []string
		End    int
	}
	p.Eval(`({text: __term.text, faults: __term.faults, end: __term.at})`, &got)
	if len(got.Faults) > 0 {
		s.Site.T.Fatalf("the terminal's faults: %s", strings.Join(got.Faults, "; "))
	}
	lines := counted.FindAllStringSubmatch(got.Text, -1)
	for i, line := range lines {
		if line[1] != strconv.Itoa(i+1) {
			s.Site.T.Fatalf("line %d of the terminal is %q:\n%s", i+1, line[0], got.Text)
		}
	}
	if len(lines) != counts {
		s.Site.T.Fatalf("the terminal shows %d lines, want %d:\n%s", len(lines), counts, got.Text)
	}
	s.note("the server is killed under an open terminal",
		"kill -9 %d at byte %d; the terminal goes on there, to byte %d: lines 1 to %d, each once", killed, at,
		got.End, counts)
	s.note("and the command in it is a commit", "%s", s.commits()[0])
	p.Eval(`__term.type('exit\n'); 0`, nil)
	s.wait("the end of the shell", func() (over bool) {
		p.Eval(`!__term.running`, &over)
		return over
	})
}
