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
	"slices"

	"github.com/ramus-dev/ramus/gitd/object"
)

// batchMost is the number of objects in one question. Servers may refuse more.
const batchMost = 100

// Opener opens the content of an object.
type Opener func(context.Context, Object) (io.ReadCloser, error)

// Send sends the objects that the other side lacks, and returns their number. open opens the content of one. The error is
// [object.ErrUpstreamRefused] if the other side takes no objects, and [object.ErrUpstream] if another attempt may help.
func (r *Remote) Send(ctx context.Context, objects []Object, open Opener) (sent int, err error) {
	if r.Dir != "" {
		return r.writeObjects(ctx, objects, open)
	}
	client := r.newClient()
	for part := range slices.Chunk(objects, batchMost) {
		reply, err := r.ask(ctx, client, Upload, part)
		if errors.Is(err, object.ErrNotFound) {
			return sent, fmt.Errorf("upstream has no Git LFS server (%v), and the commits have large files: %w",
				err, object.ErrUpstreamRefused)
		}
		if err != nil {
			return sent, err
		}
		for _, offer := range reply.Objects {
			if !slices.Contains(part, offer.Object) {
				continue
			}
			if offer.Error != nil {
				return sent, fmt.Errorf("upstream's Git LFS server takes no object %s: %.300q: %w",
					offer.OID, offer.Error.Message, object.ErrUpstreamRefused)
			}
			action, wanted := offer.Actions[Upload]
			if !wanted {
				continue
			}
			if err := r.put(ctx, client, offer, action, open); err != nil {
				return sent, err
			}
			sent++
		}
	}
	return sent, nil
}

// put sends the content of an object, and has it verified if the other side asks for that.
func (r *Remote) put(ctx context.Context, client *http.Client, offer Offer, a Action, open Opener) error {
	req, err := r.request(ctx, http.MethodPut, offer, a)
	if err != nil {
		return err
	}
	in, err := open(ctx, offer.Object)
	if err != nil {
		return err
	}
	defer in.Close()
	req.Body, req.ContentLength = io.NopCloser(NewContent(offer.Object, in)), offer.Size
	if offer.Size == 0 {
		req.Body = http.NoBody
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	res, err := r.send(ctx, client, req)
	if err != nil {
		return err
	}
	res.Body.Close()
	verify, wanted := offer.Actions["verify"]
	if !wanted {
		return nil
	}
	if req, err = r.request(ctx, http.MethodPost, offer, verify); err != nil {
		return err
	}
	text, err := json.Marshal(offer.Object)
	if err != nil {
		return err
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	req.Header.Set("Content-Type", MediaType)
	req.Header.Set("Accept", MediaType)
	if res, err = r.send(ctx, client, req); err != nil {
		return err
	}
	return res.Body.Close()
}

// writeObjects writes the objects into Dir.
func (r *Remote) writeObjects(ctx context.Context, objects []Object, open Opener) (sent int, err error) {
	for _, o := range objects {
		switch _, err := os.Lstat(r.file(o)); {
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return sent, err
		}
		if err := r.placeOne(ctx, o, open); err != nil {
			return sent, fmt.Errorf("cannot write the object %s of upstream: %w", o.OID, err)
		}
		sent++
	}
	return sent, nil
}

func (r *Remote) placeOne(ctx context.Context, o Object, open Opener) error {
	in, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer in.Close()
	to := r.file(o)
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".ramus-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, NewContent(o, in))
	err = errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	return err
}

// request returns a request of an action. The credential is sent to the site of URL only.
func (r *Remote) request(ctx context.Context, method string, offer Offer, a Action) (*http.Request, error) {
	u, err := url.Parse(a.Href)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("upstream's Git LFS server names no address of the object %s: %w", offer.OID,
			object.ErrUpstream)
	}
	own, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	if own.Scheme == "https" && u.Scheme != "https" {
		return nil, fmt.Errorf("upstream's Git LFS server names an address of the object %s without TLS: %w",
			offer.OID, object.ErrUpstream)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if !offer.Authenticated && u.Scheme == own.Scheme && u.Host == own.Host {
		for k, v := range r.Header {
			req.Header[k] = v
		}
	}
	for k, v := range a.Header {
		req.Header.Set(k, v)
	}
	return req, nil
}
