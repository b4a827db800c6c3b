package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// objectKind is what an object is.
type objectKind struct {
	kind   string // commit, tree, blob, tag; empty: it is not there
	peeled Hash   // what a tag stands for in the end; missing: neither it nor that is there
}

// missing marks an object that is not there.
const missing Hash = "!"

// kindsInProcess is up to how many objects are cheaper looked at here than by a git.
const kindsInProcess = 8

// kinds looks at many objects.
func (o *objectReader) kinds(ctx context.Context, hashes []Hash) (map[Hash]objectKind, error) {
	found := make(map[Hash]objectKind, len(hashes))
	if len(hashes) > kindsInProcess {
		return found, o.batchKinds(ctx, hashes, found)
	}
	for _, h := range hashes {
		k := objectKind{}
		kind, err := o.kind(ctx, h)
		if errors.Is(err, ErrNotFound) {
			found[h] = objectKind{peeled: missing}
			continue
		} else if err != nil {
			return nil, err
		}
		k.kind = kind
		if kind == "tag" {
			if k.peeled, err = o.stands(ctx, h); err != nil {
				return nil, err
			}
		}
		found[h] = k
	}
	return found, nil
}

// stands follows tags to what is none; missing: that is not there.
func (o *objectReader) stands(ctx context.Context, h Hash) (Hash, error) {
	for range 20 {
		obj, _, err := o.small(ctx, h)
		switch {
		case errors.Is(err, ErrNotFound):
			return missing, nil
		case err != nil && (obj.Kind == "" || !errors.Is(err, ErrTooLarge)):
			return "", err
		case obj.Kind != "tag":
			return h, nil
		}
		target, ok := strings.CutPrefix(firstLine(obj.Data), "object ")
		if !ok || CheckHash(Hash(target)) != nil {
			return missing, nil
		}
		h = Hash(target)
	}
	return missing, nil
}

// batchKinds asks git about objects, all at once.
func (o *objectReader) batchKinds(ctx context.Context, hashes []Hash, found map[Hash]objectKind) error {
	ask := func(hashes []Hash, suffix string, answer func(h Hash, fields []string)) error {
		var in bytes.Buffer
		for _, h := range hashes {
			in.WriteString(string(h) + suffix + "\n")
		}
		out, err := o.repo.server.git.Output(ctx, gitcmd.Command{
			Repo: o.repo.dir, Args: []string{"cat-file", "--batch-check=%(objecttype) %(objectname)"}, In: &in,
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
	var tags []Hash
	err := ask(hashes, "", func(h Hash, fields []string) {
		// Of a missing object git prints its name and "missing".
		if len(fields) != 2 || fields[1] != string(h) {
			found[h] = objectKind{peeled: missing}
			return
		}
		found[h] = objectKind{kind: fields[0]}
		if fields[0] == "tag" {
			tags = append(tags, h)
		}
	})
	if err != nil || len(tags) == 0 {
		return err
	}
	return ask(tags, "^{}", func(h Hash, fields []string) {
		k := objectKind{kind: "tag", peeled: missing}
		if len(fields) == 2 && len(fields[1]) == len(h) && object.IsHex(fields[1]) {
			k.peeled = Hash(fields[1])
		}
		found[h] = k
	})
}
