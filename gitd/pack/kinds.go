package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// Kind describes an object that may be missing.
type Kind struct {
	Kind   string      // commit, tree, blob or tag, "" if it is missing
	Peeled object.Hash // the object that a tag names in the end, Missing if that or the object itself is missing
}

// Missing marks a missing object in [Kind.Peeled].
const Missing object.Hash = "!"

// kindsInProcess is the number of objects up to which it is cheaper to read them here than to
// start git.
const kindsInProcess = 8

// Kinds returns the kinds of many objects.
func (o *Reader) Kinds(ctx context.Context, hashes []object.Hash) (map[object.Hash]Kind, error) {
	found := make(map[object.Hash]Kind, len(hashes))
	if len(hashes) > kindsInProcess {
		return found, o.batchKinds(ctx, hashes, found)
	}
	for _, h := range hashes {
		k := Kind{}
		kind, err := o.Kind(ctx, h)
		if errors.Is(err, object.ErrNotFound) {
			found[h] = Kind{Peeled: Missing}
			continue
		} else if err != nil {
			return nil, err
		}
		k.Kind = kind
		if kind == "tag" {
			if k.Peeled, err = o.peelTag(ctx, h); err != nil {
				return nil, err
			}
		}
		found[h] = k
	}
	return found, nil
}

// peelTag follows tags to an object that is not a tag. Returns Missing if that is missing.
func (o *Reader) peelTag(ctx context.Context, h object.Hash) (object.Hash, error) {
	for range 20 {
		obj, _, err := o.Small(ctx, h)
		switch {
		case errors.Is(err, object.ErrNotFound):
			return Missing, nil
		case err != nil && (obj.Kind == "" || !errors.Is(err, object.ErrTooLarge)):
			return "", err
		case obj.Kind != "tag":
			return h, nil
		}
		target, ok := strings.CutPrefix(FirstLine(obj.Data), "object ")
		if !ok || object.CheckHash(object.Hash(target)) != nil {
			return Missing, nil
		}
		h = object.Hash(target)
	}
	return Missing, nil
}

// batchKinds asks git for the kinds of all hashes at once and adds them to found.
func (o *Reader) batchKinds(ctx context.Context, hashes []object.Hash, found map[object.Hash]Kind) error {
	ask := func(hashes []object.Hash, suffix string, answer func(h object.Hash, fields []string)) error {
		var in bytes.Buffer
		for _, h := range hashes {
			in.WriteString(string(h) + suffix + "\n")
		}
		out, err := o.Git.Output(ctx, gitcmd.Command{
			Repo: o.Dir, Args: []string{"cat-file", "--batch-check=%(objecttype) %(objectname)"}, In: &in,
		})
		if err != nil {
			return fmt.Errorf("cannot look at %d objects: %w", len(hashes), err)
		}
		lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		if len(lines) != len(hashes) {
			return fmt.Errorf("cannot look at %d objects: git answered with %d lines", len(hashes), len(lines))
		}
		for i, line := range lines {
			answer(hashes[i], strings.Fields(line))
		}
		return nil
	}
	var tags []object.Hash
	err := ask(hashes, "", func(h object.Hash, fields []string) {
		// Of a missing object git prints its name and "missing".
		if len(fields) != 2 || fields[1] != string(h) {
			found[h] = Kind{Peeled: Missing}
			return
		}
		found[h] = Kind{Kind: fields[0]}
		if fields[0] == "tag" {
			tags = append(tags, h)
		}
	})
	if err != nil || len(tags) == 0 {
		return err
	}
	return ask(tags, "^{}", func(h object.Hash, fields []string) {
		k := Kind{Kind: "tag", Peeled: Missing}
		if len(fields) == 2 && len(fields[1]) == len(h) && object.IsHex(fields[1]) {
			k.Peeled = object.Hash(fields[1])
		}
		found[h] = k
	})
}
