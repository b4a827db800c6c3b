package clone

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/gitd/protocol"
)

// TestFollow has readers follow a growing answer. They get whole packets in order, with
// progress between them if they want it, and nothing after the end.
func TestFollow(t *testing.T) {
	c := &replyCache{root: t.TempDir(), max: 4 << 20}
	defer c.close()
	rd, err := c.join(replyKey{1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rd.file, err = os.Create(rd.path); err != nil {
		t.Fatal(err)
	}
	var git, quiet bytes.Buffer
	git.Write(protocol.AppendLine(nil, "packfile\n"))
	quiet.Write(git.Bytes())
	for i := range 400 {
		git.Write(protocol.AppendBand(nil, protocol.BandProgress, fmt.Appendf(nil, "Counting %d\r", i), protocol.MaxLine))
		data := protocol.AppendBand(nil, protocol.BandData, bytes.Repeat([]byte{byte(i)}, i*7+1), protocol.MaxLine)
		git.Write(data)
		quiet.Write(data)
	}
	git.Write(protocol.AppendBand(nil, protocol.BandProgress, []byte("Counting 400, done.\n"), protocol.MaxLine))
	git.WriteString(protocol.FlushLine)
	quiet.WriteString(protocol.FlushLine)

	const followers = 6
	got := make([]bytes.Buffer, followers)
	var wg sync.WaitGroup
	for i := range followers {
		rd, err := c.join(replyKey{1}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer c.leave(rd)
			if err := rd.send(t.Context(), i%2 == 0, unsized{&got[i]}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.keepAnswer(t.Context(), rd.keptReply, &git); err != nil {
		t.Fatal(err)
	}
	rd.mu.Lock()
	rd.whole, rd.last = true, lastLines(rd.told)
	rd.moved.Broadcast()
	rd.mu.Unlock()
	wg.Wait()
	late, err := c.join(replyKey{1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var last bytes.Buffer
	if err := late.send(t.Context(), true, unsized{&last}); err != nil {
		t.Fatal(err)
	}
	c.leave(late)
	c.leave(rd)
	for i, b := range append(got, last) {
		data, said := split(t, b.Bytes())
		if !bytes.Equal(data, quiet.Bytes()) {
			t.Errorf("reader %d got other %d bytes", i, len(data))
		}
		switch {
		case i%2 == 1 && said != "":
			t.Errorf("reader %d was told %q", i, said)
		case i == followers && said != "Counting 400, done.\n":
			t.Errorf("who came late was told %q", said)
		case i%2 == 0 && !strings.HasSuffix(said, "done.\n"):
			t.Errorf("reader %d was told %q", i, said)
		}
	}
}

type unsized struct{ io.Writer }

func (unsized) SetLength(int64) {}

// split removes progress from an answer, which must end with its flush.
func split(t testing.TB, b []byte) (data []byte, said string) {
	t.Helper()
	r := bytes.NewReader(b)
	lines := protocol.NewReader(r)
	for {
		raw, kind, err := lines.NextRaw()
		if err != nil {
			t.Fatalf("%v after %d bytes", err, len(data))
		}
		switch {
		case kind == protocol.Data && raw[4] == protocol.BandProgress:
			said += string(raw[5:])
		case kind == protocol.Data && len(raw) == 5:
		default:
			data = append(data, raw...)
		}
		if kind == protocol.Flush {
			if r.Len() > 0 {
				t.Errorf("%d bytes after the end", r.Len())
			}
			return data, said
		}
	}
}
