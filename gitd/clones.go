package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
	"github.com/ramus-dev/ramus/gitd/refview"
)

// cloneRequest describes a fetch to the clone cache. The wants must have been checked.
func (s *Server) cloneRequest(a access, f *protocol.FetchRequest) *clone.Request {
	req := &clone.Request{Repo: cloneRepo{a.repo}, Client: cloneClient{s, a}, Fetch: f, Shallow: a.repo.view.ShallowState()}
	req.Tags, req.AllTags = a.repo.view.TagState(a.grant)
	return req
}

// cloneRepo is a repository as the clone cache sees it.
type cloneRepo struct{ r *Repo }

func (c cloneRepo) Name() string          { return c.r.name }
func (c cloneRepo) Dir() string           { return c.r.dir }
func (c cloneRepo) ID() string            { return fmt.Sprint(c.r.id) }
func (c cloneRepo) Objects() *pack.Reader { return &c.r.objects }

func (c cloneRepo) Scratch() (string, error) { return c.r.server.makeScratch() }

func (c cloneRepo) Run(ctx context.Context, cmd gitcmd.Command) error {
	return c.r.runLimited(ctx, cmd)
}

func (c cloneRepo) BaseTip(ctx context.Context) (Hash, error) {
	base, err := c.r.Base(ctx)
	if err != nil {
		return "", nil // clones of a repository without a base are git's
	}
	tip, err := c.r.readRef(ctx, "refs/heads/"+base)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return tip, err
}

func (c cloneRepo) TagState(ctx context.Context) (string, error) {
	if err := c.r.view.Refresh(ctx); err != nil {
		return "", err
	}
	tags, _ := c.r.view.TagState(Grant{})
	return tags, nil
}

func (c cloneRepo) Tags() []clone.Tag {
	var tags []clone.Tag
	c.r.view.Each(Grant{}, []string{"refs/tags/"}, func(ref *refview.Ref) {
		if ref.Peeled != "" {
			tags = append(tags, clone.Tag{Hash: ref.Hash, Peeled: ref.Peeled})
		}
	})
	return tags
}

// cloneClient is the client of a fetch as the clone cache sees it.
type cloneClient struct {
	s *Server
	a access
}

func (c cloneClient) Admit(ctx context.Context) (release func(), err error) {
	return c.s.slots.acquire(ctx, c.a.client)
}

func (c cloneClient) UploadPack(ctx context.Context, request []byte, release func(), read func(io.Reader) error) error {
	// The answer is for all clients that may see the wants, so nothing may depend on the grant of the first client.
	a := c.a
	a.grant, a.protocol = Grant{}, "version=2"
	return c.s.limitedChild(ctx, a, gitcmd.Command{
		Args: []string{"upload-pack", "--stateless-rpc", a.dir},
		Env:  a.env(),
		In:   struct{ io.Reader }{bytes.NewReader(request)},
	}, release, func(r io.Reader, _ context.CancelCauseFunc) error {
		return read(r)
	})
}
