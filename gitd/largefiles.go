package gitd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/lfs"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/sshd"
)

// Git LFS is served at /NAME.git/info/lfs. A client sends a batch with the objects that it wants or has, and gets the
// URL of each. The URLs are of this server, and the credential of the batch is that of the transfers.

// LargeFiles keeps the Git LFS objects of repositories. An object of one repository is not an object of another.
// Methods are safe for concurrent use.
type LargeFiles interface {
	// Find returns those of the objects that the repository has, with their right sizes. With upstream they include
	// those that its upstream has. A returned object stays for a day at least, so that a pointer to it can arrive.
	Find(ctx context.Context, r *Repo, objects []lfs.Object, upstream bool) ([]lfs.Object, error)
	// Put keeps an object. It returns nil when the object is durable, and the error of from otherwise.
	Put(ctx context.Context, r *Repo, o lfs.Object, from io.Reader) error
	// Open opens an object. It fetches one from upstream that the repository does not have. Returns [ErrNotFound] if
	// neither has it.
	Open(ctx context.Context, r *Repo, o lfs.Object) (io.ReadSeekCloser, error)
	// Send sends those of the objects that the repository has to an upstream, which may have them already. An empty URL means
	// the source of the import.
	Send(ctx context.Context, r *Repo, up Upstream, objects []lfs.Object) error
}

const (
	lfsPath = "/info/lfs/"
	verbLFS = "lfs" // of splitURL
	// transfersMax bounds the transfers of Git LFS objects at once. One client may have three quarters of them.
	transfersMax = 64
	// transferBuffer is the number of bytes that are copied at once. Each copy may take as long as a client may be idle.
	transferBuffer = 256 << 10
)

// splitLFS splits the URL path of a request to the Git LFS server.
func splitLFS(path string) (name, rest string, ok bool) {
	path, rooted := strings.CutPrefix(path, "/")
	i := strings.LastIndex(path, lfsPath)
	if !rooted || i <= 0 {
		return "", "", false
	}
	return path[:i], path[i+len(lfsPath):], true
}

// lfsRequest is one request to the Git LFS server.
type lfsRequest struct {
	s     *Server
	w     *httpReply
	r     *http.Request
	name  string // of the repository, as the path has it
	site  string // the URL of the server, without a slash at its end
	admit func(write bool) (access, error)
}

// serveLFS serves one request to the Git LFS server of a repository. public means that the server's URL is that of
// the client.
func (s *Server) serveLFS(ctx context.Context, w *httpReply, r *http.Request, who func(*http.Request) (Grant, bool, error), public bool) error {
	w.json = true
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	name, rest, _ := splitLFS(r.URL.Path)
	q := lfsRequest{s: s, w: w, r: r, name: name, site: s.siteOf(r, public)}
	q.admit = func(write bool) (access, error) {
		a, err := s.admitRequest(r, name, write, who)
		if err == nil && (s.LFS == nil || a.repo == nil) {
			err = &httpError{http.StatusNotFound, "Git LFS is not served here"}
		}
		return a, err
	}
	verb, object, _ := strings.Cut(rest, "/")
	switch {
	case rest == "objects/batch" && r.Method == http.MethodPost:
		return q.batch(ctx)
	case rest == "verify" && r.Method == http.MethodPost:
		return q.verify(ctx)
	case verb == "objects" && (r.Method == http.MethodGet || r.Method == http.MethodPut):
		o, err := parseObjectPath(object)
		if err != nil {
			return err
		}
		if r.Method == http.MethodPut {
			return q.upload(ctx, o)
		}
		return q.download(ctx, o)
	}
	if _, err := q.admit(false); err != nil {
		return err
	}
	if verb == "locks" {
		return &httpError{http.StatusNotFound, "locks are not served here"}
	}
	return &httpError{http.StatusNotFound, "not found"}
}

// siteOf returns the URL of the server as the client of a request knows it.
func (s *Server) siteOf(r *http.Request, public bool) string {
	if public && s.URL != "" {
		return strings.TrimRight(s.URL, "/")
	}
	u := url.URL{Scheme: "http", Host: r.Host}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	return u.String()
}

// lfsURL returns the URL of the Git LFS server of a repository.
func lfsURL(site, name string) string {
	return site + (&url.URL{Path: "/" + strings.TrimSuffix(name, ".git") + ".git" + strings.TrimSuffix(lfsPath,
		"/")}).EscapedPath()
}

// parseObjectPath parses OID/SIZE.
func parseObjectPath(text string) (lfs.Object, error) {
	oid, size, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(size, 10, 64)
	o := lfs.Object{OID: oid, Size: n}
	if err != nil || o.Check() != nil {
		return lfs.Object{}, &httpError{http.StatusNotFound, "not found; objects are at objects/OID/SIZE"}
	}
	return o, nil
}

// body returns the body of the request.
func (q lfsRequest) body() (io.Reader, error) {
	body := &httpBody{body: q.r.Body, ctl: q.w.ctl, idle: q.s.limits.Idle}
	in, err := decodeBody(q.r, body)
	return &endedReader{in, body.clearDeadline}, err
}

// endedReader calls ended when the reader has no more bytes.
type endedReader struct {
	in    io.Reader
	ended func()
}

func (r *endedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if err == io.EOF {
		r.ended()
	}
	return n, err
}

// batch answers which objects can be transferred, and where.
func (q lfsRequest) batch(ctx context.Context) error {
	body, err := q.body()
	if err != nil {
		return err
	}
	b, err := lfs.ParseBatch(body)
	if err != nil {
		return err
	}
	write := b.Operation == lfs.Upload
	a, err := q.admit(write)
	if err != nil {
		return err
	}
	if ref := b.RefName(); write && ref != "" && !a.grant.Writes(ref) {
		return &httpError{http.StatusForbidden, a.describeScope()}
	}
	valid := make([]lfs.Object, 0, len(b.Objects))
	for _, o := range b.Objects {
		if q.fault(o) == nil {
			valid = append(valid, o)
		}
	}
	found, err := q.s.LFS.Find(ctx, a.repo, valid, !write)
	if err != nil {
		return err
	}
	sizes := make(map[string]int64, len(found))
	for _, o := range found {
		sizes[o.OID] = o.Size
	}
	reply := lfs.Reply{Transfer: lfs.Basic, HashAlg: "sha256"}
	for _, o := range b.Objects {
		size, has := sizes[o.OID]
		reply.Objects = append(reply.Objects, q.offer(b.Operation, o, has, size))
	}
	return q.reply(reply)
}

// fault returns the reason why an object cannot be kept, or nil.
func (q lfsRequest) fault(o lfs.Object) error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.Size > q.s.limits.LFSBytes {
		return object.Refuse(ErrTooLarge, "the object has %d bytes, git.limits.lfs_bytes allows %d", o.Size,
			q.s.limits.LFSBytes)
	}
	return nil
}

// offer describes the client's action for an object that the repository has, or has not.
func (q lfsRequest) offer(operation string, o lfs.Object, has bool, size int64) lfs.Offer {
	offer := lfs.Offer{Object: o}
	err := q.fault(o)
	switch {
	case err != nil:
		offer.Error = &lfs.Fault{Code: http.StatusUnprocessableEntity, Message: object.ClientText(err, "it is invalid")}
	case has && size != o.Size:
		offer.Error = &lfs.Fault{Code: http.StatusUnprocessableEntity,
			Message: fmt.Sprintf("the object has %d bytes here", size)}
	case operation == lfs.Download && !has:
		offer.Error = &lfs.Fault{Code: http.StatusNotFound,
			Message: "neither this server nor the upstream of the repository has the object"}
	case operation == lfs.Download:
		offer.Authenticated = true
		offer.Actions = map[string]lfs.Action{lfs.Download: q.action(o)}
	case !has:
		offer.Authenticated = true
		verify := q.action(o)
		verify.Href = lfsURL(q.site, q.name) + "/verify"
		offer.Actions = map[string]lfs.Action{lfs.Upload: q.action(o), "verify": verify}
	}
	return offer
}

// action returns the transfer of an object. The client repeats the credential that it sent.
func (q lfsRequest) action(o lfs.Object) lfs.Action {
	a := lfs.Action{Href: fmt.Sprintf("%s/objects/%s/%d", lfsURL(q.site, q.name), o.OID, o.Size)}
	if credential := q.r.Header.Get("Authorization"); credential != "" {
		a.Header = map[string]string{"Authorization": credential}
	}
	return a
}

// upload receives an object. The client gets its answer when the object is durable.
func (q lfsRequest) upload(ctx context.Context, o lfs.Object) error {
	a, err := q.admit(true)
	if err != nil {
		return err
	}
	if err := q.fault(o); err != nil {
		return err
	}
	if n := q.r.ContentLength; n >= 0 && n != o.Size && q.r.Header.Get("Content-Encoding") == "" {
		return object.Refuse(ErrInvalid, "%d bytes are announced, the object has %d", n, o.Size)
	}
	release, err := q.s.transfers.acquire(ctx, a.client)
	if err != nil {
		return err
	}
	defer release()
	body, err := q.body()
	if err != nil {
		return err
	}
	content := lfs.NewContent(o, pack.NewContextReader(ctx, body))
	if err := q.s.LFS.Put(ctx, a.repo, o, &searched{from: content, secrets: q.s.Secrets.Finder()}); err != nil {
		return lfsFault(err)
	}
	q.s.log().Info("Git LFS object received", "repo", a.name, "subject", a.grant.Subject, "oid", o.OID, "bytes", o.Size)
	q.w.SetLength(0)
	q.w.beginReply()
	return nil
}

// lfsFault is err with the status of a full disk.
func lfsFault(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errors.Join(&httpError{http.StatusInsufficientStorage, "the server has no room for the object"}, err)
	}
	return err
}

// searched is a content that ends with an error if it holds a secret.
type searched struct {
	from    io.Reader
	secrets interface {
		io.Writer
		Names() []string
	}
}

func (r *searched) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	_, _ = r.secrets.Write(p[:n]) // it does not fail
	if err == io.EOF {
		if names := r.secrets.Names(); len(names) > 0 {
			return n, object.Refuse(ErrDenied, "the object holds the value of the secret %s", strings.Join(names, ", "))
		}
	}
	return n, err
}

// verify answers whether an object arrived.
func (q lfsRequest) verify(ctx context.Context) error {
	body, err := q.body()
	if err != nil {
		return err
	}
	o, err := lfs.ParseObject(body)
	if err != nil {
		return err
	}
	a, err := q.admit(true)
	if err != nil {
		return err
	}
	found, err := q.s.LFS.Find(ctx, a.repo, []lfs.Object{o}, false)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Size != o.Size {
		return &httpError{http.StatusNotFound, "the object is not here, or has another size"}
	}
	return q.reply(o)
}

// download sends an object, or the part of it that the client lacks.
func (q lfsRequest) download(ctx context.Context, o lfs.Object) error {
	a, err := q.admit(false)
	if err != nil {
		return err
	}
	if err := q.fault(o); err != nil {
		return err
	}
	release, err := q.s.transfers.acquire(ctx, a.client)
	if err != nil {
		return err
	}
	defer release()
	in, err := q.s.LFS.Open(ctx, a.repo, o)
	if errors.Is(err, ErrNotFound) {
		return &httpError{http.StatusNotFound, "neither this server nor the upstream of the repository has the object"}
	}
	if err != nil {
		return err
	}
	defer in.Close()
	h := q.w.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	from := parseRange(q.r.Header.Get("Range"), o.Size)
	if from > 0 {
		if _, err := in.Seek(from, io.SeekStart); err != nil {
			return fmt.Errorf("cannot read the object %s: %w", o.OID, err)
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, o.Size-1, o.Size))
		q.w.status = http.StatusPartialContent
	}
	q.w.SetLength(o.Size - from)
	q.w.beginReply()
	// The client compares the content with its name.
	n, err := io.CopyBuffer(pack.WriterOnly{Writer: q.w}, pack.NewContextReader(ctx, in), make([]byte, transferBuffer))
	if err == nil && n != o.Size-from {
		err = fmt.Errorf("the object %s has other %d bytes than its pointer says", o.OID, n)
	}
	return err
}

// parseRange returns the first byte of a range up to the end of size bytes. All other ranges are 0.
func parseRange(text string, size int64) int64 {
	spec, ok := strings.CutPrefix(text, "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if !ok || !dash || err != nil || from <= 0 || from >= size {
		return 0
	}
	if to, err := strconv.ParseInt(last, 10, 64); last != "" && (err != nil || to < size-1) {
		return 0
	}
	return from
}

// reply answers with JSON.
func (q lfsRequest) reply(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	q.w.w.Header().Set("Content-Type", lfs.MediaType)
	q.w.SetLength(int64(len(text)))
	return writeWhole(q.w, text)
}

// writeFault writes an error as clients of Git LFS read it.
func writeFault(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	if status == http.StatusUnauthorized {
		h.Set("LFS-Authenticate", h.Get("WWW-Authenticate"))
	}
	h.Set("Content-Type", lfs.MediaType)
	for _, name := range []string{"Content-Length", "Content-Range", "Accept-Ranges"} {
		h.Del(name)
	}
	body, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		body = nil
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// lfsTokenLife is how long the token of [Server.authenticateLFS] is valid.
const lfsTokenLife = 30 * time.Minute

// authenticateLFS answers git-lfs-authenticate. It writes the URL of the Git LFS server and a token for it, with the
// rights of the key and no more than the operation needs.
func (s *Server) authenticateLFS(a access, g Grant, operation string, out clone.ReplyWriter) error {
	if s.LFS == nil || a.repo == nil {
		return object.Refuse(ErrInvalid, "Git LFS is not served here")
	}
	if s.URL == "" {
		return object.Refuse(ErrInvalid,
			"Git LFS needs HTTP, and this server knows no address of its own; its operator sets url in the configuration")
	}
	end := s.now().Add(lfsTokenLife)
	if g.Expires.IsZero() || g.Expires.After(end) {
		g.Expires = end
	}
	g.Repo, g.Force, g.Delete, g.Scopes = a.name, false, false, []string{grant.ScopeRead}
	if operation == lfs.Upload {
		g.Scopes = []string{grant.ScopeWrite}
	} else {
		g.Write = nil
	}
	token, err := s.Sign(g)
	if err != nil {
		return err
	}
	text, err := json.Marshal(lfs.Action{
		Href:      lfsURL(strings.TrimRight(s.URL, "/"), a.name),
		Header:    map[string]string{"Authorization": "Bearer " + token},
		ExpiresIn: int(g.Expires.Sub(s.now()).Seconds()),
	})
	if err != nil {
		return err
	}
	return writeWhole(out, append(text, '\n'))
}

// serveLFSLogin runs git-lfs-authenticate. args are a path and an operation.
func (s *Server) serveLFSLogin(ctx context.Context, v *sshd.Session, args string) uint32 {
	i := strings.LastIndexByte(args, ' ')
	if i < 0 {
		return v.Refuse("git-lfs-authenticate needs a repository and an operation")
	}
	path, ok := sshd.UnquoteWord(args[:i])
	operation, _ := sshd.UnquoteWord(args[i+1:])
	if !ok || operation != lfs.Download && operation != lfs.Upload {
		return v.Refuse("git-lfs-authenticate: the operation is download or upload")
	}
	write := operation == lfs.Upload
	a, code := s.locateForSSH(ctx, v, strings.TrimPrefix(path, "/"), write)
	if code != 0 {
		return code
	}
	if err := s.authenticateLFS(a, a.grant, operation, sshAnswer{v.Channel}); err != nil {
		s.log().Info("git-lfs-authenticate failed", "repo", a.name, "subject", a.grant.Subject, "err", err)
		return v.Refuse("%s", object.ClientText(err, "git-lfs-authenticate failed on the server"))
	}
	return 0
}
