package rest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// Post is a comment that is made once for each mark.
type Post struct {
	What string // completes "cannot WHAT" in errors
	// Where is the repository. A mark is used once in it.
	Where forge.Name
	Mark  string
	// Trailer is the last line of the comment, by which it is found. The default is [forge.Trailer].
	Trailer string
	// Me returns the author of the comment.
	Me func(context.Context) (string, error)
	// Read returns the comments among which it is.
	Read func(context.Context) ([]forge.Comment, error)
	// Write makes the comment. done is the Done of its request.
	Write func(ctx context.Context, trailer string, done func() (bool, error)) (forge.Comment, error)
}

// Post makes a comment unless there is one with the mark, perhaps from an earlier process.
func (c *Client) Post(ctx context.Context, p Post) (forge.Comment, error) {
	if p.Mark == "" {
		return forge.Comment{}, fmt.Errorf("cannot %s: %w", p.What,
			errors.New("it has no mark, so it could not be found again"))
	}
	if err := c.setup(); err != nil {
		return forge.Comment{}, fmt.Errorf("cannot %s: %w", p.What, err)
	}
	if p.Trailer == "" {
		p.Trailer = forge.Trailer(p.Mark)
	}
	leave, err := c.lanes.Enter(ctx, "mark "+p.Where.String()+" "+p.Mark, 1)
	if err != nil {
		return forge.Comment{}, fmt.Errorf("cannot %s: %w", p.What, err)
	}
	defer leave(0)
	me, err := p.Me(ctx)
	if err != nil {
		return forge.Comment{}, err
	}
	var there forge.Comment
	var was bool
	done := func() (bool, error) {
		all, err := p.Read(ctx)
		for _, one := range all {
			if strings.EqualFold(one.User, me) && forge.EndsWith(one.Body, p.Trailer) {
				there, was = one, true
				return true, nil
			}
		}
		return false, err
	}
	if _, err := done(); was || err != nil {
		return there, err
	}
	made, err := p.Write(ctx, p.Trailer, done)
	if was {
		return there, err
	}
	return made, err
}
