package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// gitClient speaks protocol v2 (gitprotocol-v2) as a clone does, and drops the pack, so that it measures the server. It
// requires v2 and checks that the response is a complete pack. Each value is one client with its own connection.
type gitClient struct {
	url  string // of the repository
	user string // "name:token", or empty
	http *http.Client
}

func newGitClient(url, user string) *gitClient {
	return &gitClient{url: url, user: user, http: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
}

func (c *gitClient) close() { c.http.CloseIdleConnections() }

// clone is the request of a fetch.
type clone struct {
	ref    string // "HEAD", "refs/heads/main"
	all    bool   // also all other branches
	depth  int
	filter string
	// pack, when set, receives the bytes of the pack, for the expensive check.
	pack io.Writer
}

// fetched is the result of a fetch.
type fetched struct {
	tip     string
	objects uint32
	bytes   int64
}

func (c *gitClient) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Git-Protocol", "version=2")
	req.Header.Set("User-Agent", "git/2.39.5")
	if body != nil {
		service := path[strings.LastIndexByte(path, '/')+1:]
		req.Header.Set("Content-Type", "application/x-"+service+"-request")
		req.Header.Set("Accept", "application/x-"+service+"-result")
	}
	if c.user != "" {
		name, token, _ := strings.Cut(c.user, ":")
		req.SetBasicAuth(name, token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp, nil
}

// capabilities reads the advertisement. It returns an error if the protocol is not v2.
func (c *gitClient) capabilities(ctx context.Context) error {
	resp, err := c.do(ctx, "GET", "/info/refs?service=git-upload-pack", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	p := newPackets(resp.Body)
	line, err := p.next()
	if err == nil && bytes.HasPrefix(line, []byte("# service=")) {
		if _, err = p.next(); err == nil { // the flush that follows
			line, err = p.next()
		}
	}
	if err != nil {
		return fmt.Errorf("cannot read the advertisement: %w", err)
	}
	if string(line) != "version 2\n" {
		return fmt.Errorf("the server does not speak protocol v2: %q", line)
	}
	_, err = io.Copy(io.Discard, p.r)
	return err
}

// refs returns the refs below prefixes, as names and hashes.
func (c *gitClient) refs(ctx context.Context, prefixes ...string) (map[string]string, error) {
	var body bytes.Buffer
	writePacket(&body, "command=ls-refs\n")
	writePacket(&body, "object-format=sha1")
	body.WriteString("0001")
	writePacket(&body, "peel\n")
	writePacket(&body, "symrefs\n")
	for _, p := range prefixes {
		writePacket(&body, "ref-prefix "+p+"\n")
	}
	body.WriteString("0000")
	resp, err := c.do(ctx, "POST", "/git-upload-pack", &body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	p := newPackets(resp.Body)
	refs := map[string]string{}
	for {
		line, err := p.next()
		if err != nil {
			return nil, fmt.Errorf("cannot read the refs: %w", err)
		}
		if line == nil {
			_, err := io.Copy(io.Discard, p.r)
			return refs, err
		}
		hash, rest, _ := bytes.Cut(line, []byte(" "))
		name, _, _ := bytes.Cut(bytes.TrimSuffix(rest, []byte("\n")), []byte(" "))
		refs[string(name)] = string(hash)
	}
}

// clone performs all requests of a clone.
func (c *gitClient) clone(ctx context.Context, f clone) (fetched, error) {
	if err := c.capabilities(ctx); err != nil {
		return fetched{}, err
	}
	prefixes := []string{f.ref}
	if f.all {
		prefixes = append(prefixes, "refs/heads/")
	}
	refs, err := c.refs(ctx, prefixes...)
	if err != nil {
		return fetched{}, err
	}
	tip := refs[f.ref]
	if tip == "" {
		return fetched{}, fmt.Errorf("the server has no %s", f.ref)
	}
	wants := []string{tip}
	if f.all {
		wants = slices.Compact(slices.Sorted(maps.Values(refs)))
	}
	resp, err := c.do(ctx, "POST", "/git-upload-pack", fetchBody(wants, f))
	if err != nil {
		return fetched{}, err
	}
	defer resp.Body.Close()
	got, err := readPack(newPackets(resp.Body), f.pack)
	if err != nil {
		return got, fmt.Errorf("cannot read the pack: %w", err)
	}
	got.tip = tip
	return got, nil
}

// fetchBody returns the request of a client that has no objects.
func fetchBody(wants []string, f clone) *bytes.Buffer {
	body := new(bytes.Buffer)
	writePacket(body, "command=fetch")
	writePacket(body, "object-format=sha1")
	body.WriteString("0001")
	for _, s := range []string{"thin-pack", "no-progress", "ofs-delta"} {
		writePacket(body, s)
	}
	if f.depth > 0 {
		writePacket(body, "deepen "+strconv.Itoa(f.depth))
	}
	if f.filter != "" {
		writePacket(body, "filter "+f.filter)
	}
	for _, w := range wants {
		writePacket(body, "want "+w+"\n")
	}
	writePacket(body, "done\n")
	body.WriteString("0000")
	return body
}

// readPack reads a fetch's response to its end.
func readPack(p *packets, to io.Writer) (got fetched, err error) {
	for { // sections before the pack, such as shallow-info, each ended by a delimiter
		line, err := p.next()
		if err != nil {
			return got, err
		}
		if string(line) == "packfile\n" {
			break
		}
		if line == nil && !p.delimiter {
			return got, errors.New("the answer has no pack")
		}
	}
	var head []byte
	for {
		n, err := p.length()
		if err != nil {
			return got, err
		}
		if n < 4 {
			break
		}
		band, err := p.r.ReadByte()
		if err != nil {
			return got, err
		}
		n -= 5
		if band == 3 {
			text := make([]byte, min(n, 500))
			io.ReadFull(p.r, text)
			return got, fmt.Errorf("the server says %q", text)
		}
		if band != 1 {
			if _, err := p.r.Discard(n); err != nil {
				return got, err
			}
			continue
		}
		got.bytes += int64(n)
		for n > 0 && (len(head) < 12 || to != nil) {
			piece, err := p.r.Peek(min(n, 4096))
			if err != nil {
				return got, err
			}
			if need := 12 - len(head); need > 0 {
				head = append(head, piece[:min(need, len(piece))]...)
			}
			if to != nil {
				if _, err := to.Write(piece); err != nil {
					return got, err
				}
			}
			p.r.Discard(len(piece))
			n -= len(piece)
		}
		if _, err := p.r.Discard(n); err != nil {
			return got, err
		}
	}
	if len(head) < 12 || string(head[:4]) != "PACK" || got.bytes < 32 {
		return got, errors.New("what came is no pack")
	}
	got.objects = binary.BigEndian.Uint32(head[8:])
	if _, err := p.r.ReadByte(); err != io.EOF {
		return got, errors.New("the answer goes on after its end")
	}
	return got, nil
}

// packets reads pkt-lines.
type packets struct {
	r         *bufio.Reader
	delimiter bool // the last one was 0001
}

func newPackets(r io.Reader) *packets { return &packets{r: bufio.NewReaderSize(r, 64<<10)} }

// length reads the four digits before a packet. 0, 1 and 2 are flush, delimiter and end.
func (p *packets) length() (int, error) {
	var b [4]byte
	if _, err := io.ReadFull(p.r, b[:]); err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(b[:]), 16, 16)
	if err != nil || n == 3 {
		return 0, fmt.Errorf("%q is no length of a packet", b)
	}
	return int(n), nil
}

// next returns the content of the next packet, or nil at a flush, a delimiter or an end.
func (p *packets) next() ([]byte, error) {
	n, err := p.length()
	if err != nil {
		return nil, err
	}
	p.delimiter = n == 1
	if n < 4 {
		return nil, nil
	}
	line := make([]byte, n-4)
	_, err = io.ReadFull(p.r, line)
	return line, err
}

func writePacket(b *bytes.Buffer, s string) { fmt.Fprintf(b, "%04x%s", len(s)+4, s) }
