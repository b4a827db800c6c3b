package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// push is a prepared push of one small commit. The client's part of the work is done before the measurement.
type push struct {
	ref      string
	old, new string // old is all zeros for a new branch
	pack     []byte
}

var noHash = strings.Repeat("0", 40)

// parent is the parent of prepared commits.
type parent struct {
	commit string
	root   []byte // the tree object
}

func parentIn(ctx context.Context, dir, rev string) (parent, error) {
	commit, err := gitIn(ctx, dir, "rev-parse", rev)
	if err != nil {
		return parent{}, err
	}
	// The entries come from ls-tree, because gitIn removes the last newline, which may be the last byte of a hash.
	text, err := gitIn(ctx, dir, "ls-tree", "-z", rev)
	if err != nil {
		return parent{}, err
	}
	var root []byte
	for entry := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		head, name, _ := strings.Cut(entry, "\t")
		fields := strings.Fields(head)
		hash, err := hex.DecodeString(fields[2])
		if err != nil {
			return parent{}, err
		}
		root = append(root, strings.TrimLeft(fields[0], "0")+" "+name+"\x00"...)
		root = append(root, hash...)
	}
	return parent{commit, root}, nil
}

// prepare makes a push of ten new files in a folder that sorts after all others.
func prepare(on parent, ref string, n int) push {
	var objects []packed
	var folder []byte
	for i := range 10 {
		h := keep(&objects, 3, []byte(prose(uint64(n), uint64(i)+10, 1)))
		folder = append(folder, fmt.Sprintf("100644 file-%02d.txt\x00", i)...)
		folder = append(folder, h[:]...)
	}
	below := keep(&objects, 2, folder)
	root := append(append([]byte{}, on.root...), "40000 zz-pushed\x00"...)
	tree := keep(&objects, 2, append(root, below[:]...))
	who := fmt.Sprintf("A Person <person@example.org> %d +0000", 1_750_000_000+n)
	commit := keep(&objects, 1, fmt.Appendf(nil, "tree %x\nparent %s\nauthor %s\ncommitter %[3]s\n\nPush %d\n", tree,
		on.commit, who, n))
	return push{ref: ref, old: noHash, new: hex.EncodeToString(commit[:]), pack: packOf(objects)}
}

type packed struct {
	kind byte // number of the type in a pack
	data []byte
}

func keep(objects *[]packed, kind byte, data []byte) [20]byte {
	*objects = append(*objects, packed{kind, data})
	name := [...]string{1: "commit", 2: "tree", 3: "blob"}[kind]
	return sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", name, len(data)), data...))
}

// packOf returns a pack (gitformat-pack).
func packOf(objects []packed) []byte {
	var b bytes.Buffer
	b.WriteString("PACK\x00\x00\x00\x02")
	binary.Write(&b, binary.BigEndian, uint32(len(objects)))
	for _, o := range objects {
		size := len(o.data)
		c := o.kind<<4 | byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			b.WriteByte(c | 0x80)
			c = byte(size & 0x7f)
		}
		b.WriteByte(c)
		z := zlib.NewWriter(&b)
		z.Write(o.data)
		z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

// push sends a prepared push as git does, with the advertisement first, and checks the report.
func (c *gitClient) push(ctx context.Context, p push) error {
	resp, err := c.do(ctx, "GET", "/info/refs?service=git-receive-pack", nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil {
		return err
	}
	var body bytes.Buffer
	writePacket(&body, fmt.Sprintf("%s %s %s\x00 report-status object-format=sha1", p.old, p.new, p.ref))
	body.WriteString("0000")
	body.Write(p.pack)
	if resp, err = c.do(ctx, "POST", "/git-receive-pack", &body); err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	r := newPackets(bytes.NewReader(text))
	for _, want := range []string{"unpack ok", "ok " + p.ref} {
		line, err := r.next()
		if err != nil || strings.TrimSuffix(string(line), "\n") != want {
			return fmt.Errorf("the push of %s was not taken: %q", p.ref, text)
		}
	}
	return nil
}
