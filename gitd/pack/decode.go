package pack

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/object"
)

// ReadCommit returns the content of the commit h. Returns [object.ErrNotFound] if h is no commit.
func (o *Reader) ReadCommit(ctx context.Context, h object.Hash) (object.RawCommit, error) {
	_, c, err := o.RawCommit(ctx, h)
	return c, err
}

// RawCommit is [Reader.ReadCommit] with all bytes of the object.
func (o *Reader) RawCommit(ctx context.Context, h object.Hash) ([]byte, object.RawCommit, error) {
	obj, _, err := o.Small(ctx, h)
	if err != nil {
		return nil, object.RawCommit{}, err
	}
	if obj.Kind != "commit" {
		return nil, object.RawCommit{}, fmt.Errorf("object %s is a %s, not a commit: %w", h, obj.Kind, object.ErrNotFound)
	}
	c, err := object.ParseCommit(obj.Data)
	if err != nil {
		return nil, c, fmt.Errorf("object %s: %w", h, err)
	}
	return obj.Data, c, nil
}

// TreeOf returns the name of the tree of a commit.
func (o *Reader) TreeOf(ctx context.Context, commit object.Hash) (object.Hash, error) {
	c, err := o.ReadCommit(ctx, commit)
	return c.Tree, err
}

// ReadTree returns the entries of the tree h. Returns [object.ErrInvalid] if h is no tree.
func (o *Reader) ReadTree(ctx context.Context, h object.Hash) ([]object.Entry, error) {
	obj, _, err := o.Small(ctx, h)
	if err != nil {
		return nil, err
	}
	if obj.Kind != "tree" {
		return nil, fmt.Errorf("object %s is a %s, not a folder: %w", h, obj.Kind, object.ErrInvalid)
	}
	entries, err := object.ParseTree(obj.Data, len(h)/2)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", h, err)
	}
	return entries, nil
}
