package lfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Remote is the Git LFS server of another repository, or the folder of its objects.
type Remote struct {
	// URL is that of the server, without a slash at its end ("https://host/team/app.git/info/lfs").
	URL string
	// Header is sent to the site of URL only. It has the credential.
	Header http.Header
	// Private lists the hosts that may have addresses which are not public, as HOST for the ports 80 and 443, or as
	// HOST:PORT.
	Private []string
	// Dir is a folder of objects on this machine, in the layout of clients. It is used in place of URL.
	Dir string
}

const (
	answerMax = 8 << 20 // bytes of an answer to a batch
	saidMax   = 300     // bytes of a message that is quoted
)

// Find returns those of the objects that the other side has.
func (r *Remote) Find(ctx context.Context, objects []Object) ([]Object, error) {
	var found []Object
	if r.Dir != "" {
		for _, o := range objects {
			if info, err := os.Lstat(r.file(o)); err == nil && info.Mode().IsRegular() && info.Size() == o.Size {
				found = append(found, o)
			}
		}
		return found, nil
	}
	client := r.newClient()
	reply, err := r.ask(ctx, client, Download, objects)
	if err != nil {
		return nil, err
	}
	asked := make(map[Object]bool, len(objects))
	for _, o := range objects {
		asked[o] = true
	}
	for _, offer := range reply.Objects {
		if offer.Error == nil && offer.Actions[Download].Href != "" && asked[offer.Object] {
			asked[offer.Object] = false
			found = append(found, offer.Object)
		}
	}
	return found, nil
}

// Open opens an object for reading. The reader does not compare it with its name. The error of an object that the
// other side does not have is [object.ErrNotFound], that of another side which does not answer [object.ErrUpstream].
func (r *Remote) Open(ctx context.Context, o Object) (io.ReadCloser, error) {
	if r.Dir != "" {
		f, err := os.OpenFile(r.file(o), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			err = object.ErrNotFound
		}
		if err != nil {
			return nil, fmt.Errorf("cannot open the object %s: %w", o.OID, err)
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return nil, errors.Join(fmt.Errorf("cannot open the object %s: %w", o.OID, object.ErrNotFound), err, f.Close())
		}
		return f, nil
	}
	client := r.newClient()
	reply, err := r.ask(ctx, client, Download, []Object{o})
	if err != nil {
		return nil, err
	}
	for _, offer := range reply.Objects {
		if offer.OID != o.OID {
			continue
		}
		if offer.Error != nil {
			return nil, fmt.Errorf("upstream's Git LFS server has no object %s: %.300q: %w", o.OID, offer.Error.Message,
				object.ErrNotFound)
		}
		if action, ok := offer.Actions[Download]; ok {
			return r.get(ctx, client, o, offer.Authenticated, action)
		}
	}
	return nil, fmt.Errorf("upstream's Git LFS server offers no object %s: %w", o.OID, object.ErrNotFound)
}

// file returns the path of an object in Dir.
func (r *Remote) file(o Object) string { return filepath.Join(r.Dir, o.OID[:2], o.OID[2:4], o.OID) }

// ask sends a batch.
func (r *Remote) ask(ctx context.Context, client *http.Client, operation string, objects []Object) (Reply, error) {
	text, err := json.Marshal(Batch{Operation: operation, Transfers: []string{Basic}, Objects: objects, HashAlg: "sha256"})
	if err != nil {
		return Reply{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/objects/batch", bytes.NewReader(text))
	if err != nil {
		return Reply{}, fmt.Errorf("cannot ask upstream's Git LFS server: %w", err)
	}
	for k, v := range r.Header {
		req.Header[k] = v
	}
	req.Header.Set("Accept", MediaType)
	req.Header.Set("Content-Type", MediaType)
	res, err := r.send(ctx, client, req)
	if err != nil {
		return Reply{}, err
	}
	defer res.Body.Close()
	var reply Reply
	body, err := io.ReadAll(io.LimitReader(res.Body, answerMax+1))
	if err == nil && len(body) > answerMax {
		err = errors.New("the answer is too large")
	}
	if err == nil {
		err = json.Unmarshal(body, &reply)
	}
	if err != nil {
		return Reply{}, fmt.Errorf("cannot read the answer of upstream's Git LFS server: %w: %w", err, object.ErrUpstream)
	}
	if reply.Transfer != "" && reply.Transfer != Basic {
		return Reply{}, fmt.Errorf("upstream's Git LFS server wants the transfer %.40q: %w", reply.Transfer,
			object.ErrUpstream)
	}
	return reply, nil
}

// get requests the content of an object.
func (r *Remote) get(ctx context.Context, client *http.Client, o Object, authenticated bool, a Action) (io.ReadCloser, error) {
	req, err := r.request(ctx, http.MethodGet, Offer{Object: o, Authenticated: authenticated}, a)
	if err != nil {
		return nil, err
	}
	res, err := r.send(ctx, client, req)
	if err != nil {
		return nil, err
	}
	if res.ContentLength >= 0 && res.ContentLength != o.Size {
		res.Body.Close()
		return nil, fmt.Errorf("upstream's object %s has %d bytes, its pointer says %d: %w", o.OID, res.ContentLength,
			o.Size, object.ErrUpstream)
	}
	return res.Body, nil
}

// send sends a request and returns the answer of a success. An error has no part of an address of the other side,
// which may be a credential.
func (r *Remote) send(ctx context.Context, client *http.Client, req *http.Request) (*http.Response, error) {
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("cannot reach upstream's Git LFS server: %w: %w", err, object.ErrUpstream)
	}
	if res.StatusCode == http.StatusOK || req.Method == http.MethodPut && res.StatusCode/100 == 2 {
		return res, nil
	}
	said, _ := io.ReadAll(io.LimitReader(res.Body, saidMax))
	res.Body.Close()
	kind := object.ErrUpstream
	switch {
	case res.StatusCode == http.StatusNotFound:
		kind = object.ErrNotFound
	case req.Method == http.MethodPut && res.StatusCode/100 == 4 && res.StatusCode != http.StatusTooManyRequests:
		kind = object.ErrUpstreamRefused
	}
	return nil, fmt.Errorf("upstream's Git LFS server answers %d: %.300q: %w", res.StatusCode,
		strings.TrimSpace(string(said)), kind)
}
