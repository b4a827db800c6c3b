package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		`{"v":1,"op":"list"}`,
		`{"v":1,"op":"start","id":"a","args":["dHJ1ZQ=="],"env":["QT1i"],"dir":"YQ==","timeout":1,"tty":{"rows":1,"cols":2,"term":"x"}}`,
		`{"v":1,"op":"start","id":"a","shell":"Oy8="}`,
		`{"v":1,"op":"attach","id":"a","stdout":9223372036854775807}`,
		`{"v":1,"op":"attach","id":"a","stdout":-1}`,
		`{"v":2,"op":"list"}`, `{"v":1,"op":"start","id":"a","args":["AA=="]}`, `{"v":1,"op":"kill","id":"../x"}`, `[]`,
		`{"v":1,"op":"list"}x`, "\xff", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRequest(b)
		if err != nil {
			return
		}
		line := r.line()
		if !utf8.ValidString(line) || len(line) > 4<<10 {
			t.Errorf("line %q", line)
		}
		switch r.Op {
		case OpList, OpPorts:
			return
		}
		if !ValidID(r.ID) || strings.ContainsAny(r.ID, "/\x00 \n") {
			t.Errorf("id %q", r.ID)
		}
		if r.Op != OpStart {
			return
		}
		for _, a := range slices.Concat(r.Args, r.Env, [][]byte{r.Shell, r.Dir}) {
			if bytes.IndexByte(a, 0) >= 0 {
				t.Errorf("NUL in %q", a)
			}
		}
		// What was accepted is accepted again, the same.
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > MaxRequest {
			return
		}
		r2, err := ParseRequest(again)
		if err != nil || r2.line() != line || len(r2.Args) != len(r.Args) {
			t.Errorf("%s: %v", again, err)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add("1 (sh) S 1 2 3 0")
	f.Add("9 (a) Z (b) ) R 1 2 3 0")
	f.Add("9 (")
	f.Fuzz(func(t *testing.T, s string) {
		if p, ok := parseStat(9, s); ok && p.pid != 9 {
			t.Error(p)
		}
		for _, n := range parseListening(s) {
			if n < 1 || n > 65535 {
				t.Error(n)
			}
		}
		ParseOOMKills(s)
	})
}

func TestParseStat(t *testing.T) {
	// A process names itself so that it seems to have another parent.
	got, ok := parseStat(7, "7 (x) S 1 1 1) R 40 41 42 0 -1")
	if want := (process{pid: 7, parent: 40, group: 41, session: 42}); !ok || got != want {
		t.Errorf("%+v %v", got, ok)
	}
	if got, ok := parseStat(7, "7 (x) Z 1 2 3 0"); !ok || !got.zombie {
		t.Errorf("%+v %v", got, ok)
	}
}

func TestParseListening(t *testing.T) {
	const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1435 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1
   1: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1
   2: 0100007F:1435 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 1 1
   3: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0 0
`
	if got := parseListening(text); !slices.Equal(got, []int{5173, 7070, 80}) {
		t.Error(got)
	}
}

func TestParseConfig(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJoXwMOUJVL/5x0dTm5bXCRhAgN6n4Y3R5YCfTQH9mSb"
	c, _, err := parseConfig(`{"Listen":"fd:3","ClientKey":"` + key + `","Spool":"/s","FileSize":1000}`)
	if err != nil || c.Work != "/work" || c.Door != "127.0.0.1:7070" || c.Output != 1000 || c.DiskFree != 512<<20 ||
		c.Threads != spareThreads {
		t.Errorf("%+v %v", c, err)
	}
	for _, bad := range []string{
		``, `{`, `{"Spool":"/s"}`, `{"ClientKey":"x","Spool":"/s"}`, `{"ClientKey":"` + key + `"}`,
		`{"ClientKey":"` + key + `","Spool":"s"}`, `{"ClientKey":"` + key + `","Spool":"/s","UID":-1}`,
		`{"ClientKey":"` + key + `","Spool":"/s","UID":1000}`, `{"ClientKey":"` + key + `","Spool":"/s","Env":["A"]}`,
		`{"ClientKey":"` + key + `","Spool":"/s","Unknown":1}`,
		`{"ClientKey":"` + key + `","Spool":"/s","Threads":-1}`, `{"ClientKey":"` + key + `","Spool":"/s","Threads":100000}`,
	} {
		if _, _, err := parseConfig(bad); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}

func TestLastWins(t *testing.T) {
	got := lastWins([]string{"A=1", "B=1", "A=2", "C", "A=3=4"})
	if want := []string{"B=1", "C", "A=3=4"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestOutsideAContainer: a runner that is not process 1 would kill what is not its own.
func TestOutsideAContainer(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJoXwMOUJVL/5x0dTm5bXCRhAgN6n4Y3R5YCfTQH9mSb"
	if err := run(`{"Listen":"fd:3","ClientKey":"` + key + `","Spool":"/tmp"}`); err == nil || os.Getpid() == 1 {
		t.Error("started")
	}
}

// TestSpool has many readers follow one writer, through memory, file and limit.
func TestSpool(t *testing.T) {
	for _, limit := range []int64{0, 10, inMemory - 1, inMemory, inMemory + 1, 100_000, 1 << 20} {
		folder, err := openSpoolFolder(t.TempDir(), limit)
		if err != nil {
			t.Fatal(err)
		}
		s := &spool{folder: folder}
		var want []byte
		for i := range 60_000 {
			want = append(want, byte(i), byte(i>>8))
		}
		var wg sync.WaitGroup
		kept := want[:min(int64(len(want)), limit)]
		for r := range 8 {
			wg.Go(func() {
				off := int64(r * 7)
				var got []byte
				for buf := make([]byte, 1+r*1000); ; {
					n, err := s.readAt(context.Background(), buf, off)
					got, off = append(got, buf[:n]...), off+int64(n)
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
				if !bytes.Equal(got, kept[min(r*7, len(kept)):]) {
					t.Errorf("limit %d, reader %d: %d bytes", limit, r, len(got))
				}
			})
		}
		for i, step := 0, 1; i < len(want); step = step*3%5000 + 1 {
			n := min(step, len(want)-i)
			if m, err := s.Write(want[i : i+n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			i += n
		}
		s.finish()
		wg.Wait()
		if s.count() != int64(len(want)) {
			t.Errorf("limit %d: counted %d of %d", limit, s.count(), len(want))
		}
		s.drop()
		if _, err := s.readAt(context.Background(), make([]byte, 1), 0); err == nil {
			t.Errorf("limit %d: read what was dropped", limit)
		}
		if left, err := os.ReadDir(folder.dir.Name()); err != nil || len(left) != 0 {
			t.Errorf("limit %d: %v in the folder, %v", limit, left, err)
		}
		folder.dir.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&spool{folder: &spoolFolder{limit: 1}}).readAt(ctx, make([]byte, 1), 0); err != context.Canceled {
		t.Error(err)
	}
}
