package clone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

const (
	// composeWants bounds the wants of a composed reply. Clients that want many branches want the same as
	// others do, and are served better with one pack for all.
	composeWants = 64
	// composeBytes bounds the section. In a larger one git would find deltas worth its time.
	composeBytes = 4 << 20
	// composeCommits bounds the commits that are read to find a fitting base pack. If none fits, reading
	// them was in vain.
	composeCommits = 1000
	// A base pack with sections of more than staleObjects objects or staleBytes bytes is old. It still serves
	// while that of the present base is made.
	staleObjects = 300
	staleBytes   = 1 << 20
)

// compose answers a fetch without haves, one of whose wants descends from a base whose pack is kept. It returns
// nil if it cannot, and git should answer. The wants were checked before.
func (c *Cache) compose(ctx context.Context, repo Repo, f *protocol.FetchRequest) (*reply, error) {
	kind, ok := kindOf(f)
	if !ok || !history.IsComplete(repo.Dir(), f.Wants[0]) {
		return nil, nil
	}
	p, err := c.composeKind(ctx, repo, f, kind)
	if err == nil || ctx.Err() != nil {
		return p, err
	}
	// If anything is wrong with the repository, git reports it better.
	if !errors.Is(err, history.ErrLarge) {
		c.Log.Warn("cannot compose the answer to a clone", "repo", repo.Name(), "err", err)
	}
	return nil, nil
}

// kindOf returns the kind of clone that a request is. Returns false if it is none.
func kindOf(f *protocol.FetchRequest) (Kind, bool) {
	switch {
	case len(f.Wants) == 0, len(f.Wants) > composeWants, len(f.Haves) > 0, len(f.Shallow) > 0,
		f.DepthRelative, f.DeepenSince != 0, len(f.DeepenNot) > 0,
		!f.OFSDelta, f.WaitForDone && !f.Done:
		return 0, false
	case f.Depth == 0 && f.Filter == "":
		return Full, true
	case f.Depth == 0 && f.Filter == "blob:none":
		return Blobless, true
	case f.Depth == 1 && f.Filter == "":
		return Shallow, true
	}
	return 0, false
}

func (c *Cache) composeKind(ctx context.Context, repo Repo, f *protocol.FetchRequest, kind Kind) (_ *reply, err error) {
	key := string(f.Render(true))
	if f.IncludeTag {
		tags, err := repo.TagState(ctx)
		if err != nil {
			return nil, err
		}
		key += tags
	}
	if made, err := c.composeAgain(repo, key, kind); made != nil || err != nil {
		return made, err
	}
	tips, tags, err := splitWants(ctx, repo, f.Wants)
	if err != nil || tips == nil {
		return nil, err
	}

	select {
	case c.composing <- struct{}{}:
		defer func() { <-c.composing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p, line, err := c.fittingBase(ctx, repo, tips, kind)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, c.prepareBase(ctx, repo, tips, kind)
	}
	defer func() { c.bases.release(p, err == nil) }()
	e, err := c.makeEnvelope(ctx, f, p, line, tips, tags)
	if errors.Is(err, history.ErrLarge) || err == nil && (e.objects > staleObjects || e.bytes > staleBytes) {
		if err := c.prepareBase(ctx, repo, tips, kind); err != nil && !errors.Is(err, history.ErrLarge) {
			c.Log.Warn("cannot prepare clones", "repo", repo.Name(), "err", err)
		}
	}
	if err != nil {
		return nil, err
	}
	p.keepEnvelope(key, e)
	return p.wrap(e)
}

// composeAgain composes a reply from a kept envelope. Returns nil if there is none.
func (c *Cache) composeAgain(repo Repo, key string, kind Kind) (_ *reply, err error) {
	var made *reply
	for _, p := range c.bases.acquire(repo, kind) {
		e := p.envelopeOf(key)
		used := e != nil && made == nil && err == nil
		if used {
			made, err = p.wrap(e)
		}
		c.bases.release(p, used)
	}
	return made, err
}

// splitWants returns the commits that are wanted, and the tags on the way to them, which are objects of their
// own. Returns nil if something else is wanted.
func splitWants(ctx context.Context, repo Repo, wants []object.Hash) (tips, tags []object.Hash, err error) {
	for _, h := range wants {
		chain, tip, kind, err := followTags(ctx, repo.Objects(), h)
		if err != nil {
			return nil, nil, err
		}
		if kind != "commit" {
			return nil, nil, nil
		}
		tags = append(tags, chain...)
		if !slices.Contains(tips, tip) {
			tips = append(tips, tip)
		}
	}
	return tips, tags, nil
}

// fittingBase returns the base pack whose base the commits descend from with the fewest commits between. It
// must be released. Returns nil if there is none.
func (c *Cache) fittingBase(ctx context.Context, repo Repo, tips []object.Hash, kind Kind) (best *basePack, line *history.Range, err error) {
	for _, p := range c.bases.acquire(repo, kind) {
		l, e := history.Between(ctx, repo.Objects(), tips, []object.Hash{p.base}, composeCommits)
		switch {
		case e != nil && !errors.Is(e, history.ErrLarge):
			err = e
		case e == nil && l.Reached[p.base] && (best == nil || len(l.Commits) < len(line.Commits)):
			best, p, line = p, best, l
		}
		if p != nil {
			c.bases.release(p, false)
		}
	}
	if err != nil && best != nil {
		c.bases.release(best, false)
		best = nil
	}
	return best, line, err
}

// prepareBase makes a base pack of the present base for later clients, if one would have been of use.
func (c *Cache) prepareBase(ctx context.Context, repo Repo, tips []object.Hash, kind Kind) error {
	tip, err := repo.BaseTip(ctx)
	if err != nil || tip == "" {
		return err
	}
	line, err := history.Between(ctx, repo.Objects(), tips, []object.Hash{tip}, composeCommits)
	// A clone of the base alone is the same for all clients, so its reply is kept anyway.
	if err == nil && line.Reached[tip] && len(line.Commits) > 0 {
		c.prepareLater(repo, tip, kind)
	}
	return err
}

// makeEnvelope collects the section of the tips, and encodes the bytes before and after the base pack.
func (c *Cache) makeEnvelope(ctx context.Context, f *protocol.FetchRequest, p *basePack, line *history.Range, tips, tags []object.Hash) (*envelope, error) {
	section := history.Collector{
		Objects: p.repo.Objects(), Has: p.hasObject, NoBlobs: p.kind == Blobless,
		Section: history.Section{MaxBytes: composeBytes},
	}
	var head []byte
	if p.kind == Shallow {
		head = protocol.AppendLine(head, "shallow-info\n")
		for _, h := range tips {
			if err := section.CollectCommit(ctx, h, line.Trees[h], []object.Hash{line.Trees[p.base]}); err != nil {
				return nil, err
			}
			head = protocol.AppendLine(head, "shallow ", string(h))
		}
		head = append(head, protocol.DelimLine...)
	} else if err := section.CollectRange(ctx, line); err != nil {
		return nil, err
	}
	if f.IncludeTag {
		more, err := tagsOf(ctx, p, &section)
		if err != nil {
			return nil, err
		}
		tags = append(tags, more...)
	}
	for _, h := range tags {
		if err := section.Collect(ctx, h, "tag"); err != nil {
			return nil, err
		}
	}
	return c.encodeEnvelope(p, head, &section.Section)
}

// encodeEnvelope encodes a reply of a base pack and a section, without the base pack.
func (c *Cache) encodeEnvelope(p *basePack, head []byte, section *history.Section) (*envelope, error) {
	n := p.objects + uint32(section.Len())
	sum, err := p.checksumOf(n)
	if err != nil {
		c.bases.remove(func(q *basePack) bool { return q == p })
		return nil, err
	}
	sum.Write(section.Bytes())

	head = protocol.AppendLine(head, "packfile\n")
	head = protocol.AppendBand(head, protocol.BandData, pack.Header(n), protocol.MaxLine)
	tail := protocol.AppendBand(nil, protocol.BandData, section.Bytes(), protocol.MaxLine)
	tail = protocol.AppendBand(tail, protocol.BandData, sum.Sum(nil), protocol.MaxLine)
	tail = append(tail, protocol.FlushLine...)
	return &envelope{head: head, tail: tail, objects: section.Len(), bytes: section.Size()}, nil
}

// tagsOf returns the tags, and tags of tags, whose commits are sent (include-tag). A client that has a
// commit gets its names.
func tagsOf(ctx context.Context, p *basePack, sent *history.Collector) ([]object.Hash, error) {
	var tags []object.Hash
	for _, tag := range p.repo.Tags() {
		name := plumbing.NewHash(string(tag.Peeled))
		ok := sent.Collected(name)
		if !ok {
			var err error
			if ok, err = p.hasObject(name); err != nil {
				return nil, err
			}
		}
		if !ok {
			continue
		}
		chain, _, _, err := followTags(ctx, p.repo.Objects(), tag.Hash)
		if err != nil {
			return nil, err
		}
		tags = append(tags, chain...)
	}
	return tags, nil
}

// followTags follows tags from h to an object that is none. It returns the tags, and the name and the kind of
// the object.
func followTags(ctx context.Context, objects *pack.Reader, h object.Hash) (tags []object.Hash, end object.Hash, kind string, err error) {
	for range 20 {
		obj, _, err := objects.Small(ctx, h)
		if err != nil && (obj.Kind == "" || !errors.Is(err, object.ErrTooLarge)) {
			return nil, "", "", err
		}
		if obj.Kind != "tag" {
			return tags, h, obj.Kind, nil
		}
		target, ok := strings.CutPrefix(pack.FirstLine(obj.Data), "object ")
		if !ok {
			return nil, "", "", fmt.Errorf("tag %s is damaged: %w", h, object.ErrInvalid)
		}
		tags, h = append(tags, h), object.Hash(target)
	}
	return nil, "", "", fmt.Errorf("too many tags of tags: %w", object.ErrInvalid)
}
