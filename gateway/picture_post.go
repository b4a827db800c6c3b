package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// partPictures is the part of the message that stands where pictures of a run could
// not be shown. The message that shows them has no mark: it is found by its files' names.
const partPictures = "pictures"

// readPictures reads pictures that are to be shown. What is damaged, or is no picture whatever its
// record says, goes to the rest, for whoever opens it to be told so.
func readPictures(ctx context.Context, x *executor.Executor, run record.Run, shown []render.Picture) (good []render.Picture, contents [][]byte, left []render.Picture, err error) {
	for _, p := range shown {
		content, err := readPicture(ctx, x, run, p)
		switch {
		case err != nil && (ctx.Err() != nil || !errors.Is(err, record.ErrDamaged) && !lasting(err)):
			return nil, nil, nil, err
		case err != nil || http.DetectContentType(content) != p.File.Type:
			left = append(left, p)
		default:
			good, contents = append(good, p), append(contents, content)
		}
	}
	return good, contents, left, nil
}

func readPicture(ctx context.Context, x *executor.Executor, run record.Run, p render.Picture) ([]byte, error) {
	f, err := x.OpenFile(ctx, run, p.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err = b.ReadFrom(io.LimitReader(f, render.MaxPicture+1)); err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", p.File.Name, err)
	}
	return b.Bytes(), nil
}

// showPictures puts pictures of the run's pages into its thread, in one message, with links to the rest and
// to the traces. Where Slack does not take pictures, all of them are links. It can be done
// again: what stands there already is found.
func (r *reporter) showPictures(ctx context.Context) error {
	if r.evidence == nil {
		return nil
	}
	shown, rest := render.Pictures(r.evidence)
	recorded := render.Traces(r.evidence)
	if len(shown)+len(rest)+len(recorded) == 0 || len(shown) == 0 && r.Links == nil {
		return nil
	}
	if r.look {
		if _, found, err := r.Slack.Find(ctx, r.m.Channel, r.m.ThreadTS, r.mark(partPictures)); found || err != nil {
			return err
		}
	}
	shown, contents, left, err := readPictures(ctx, r.Executor, r.run, shown)
	if err != nil {
		return err
	}
	rest = append(left, rest...)
	links := render.PictureLinks{}
	if r.Links != nil {
		links.File = func(name string) string { return r.Links.View(r.run.Name(), name) }
		links.Trace = func(name string) string { return r.Links.Trace(r.run.Name(), name) }
	}
	why := ""
	if len(shown) > 0 {
		share := slack.Share{Channel: r.m.Channel, ThreadTS: r.m.ThreadTS, Text: render.ShownPictures(shown, rest, recorded, links)}
		for i, p := range shown {
			caption := p.Caption(render.OneLine)
			share.Files = append(share.Files, slack.Upload{Name: render.PictureName(p, i+1, r.run.ID), Title: render.Cut(caption, slackTitleMax), Alt: caption, Content: contents[i]})
		}
		err := r.Slack.Share(ctx, share, r.look)
		if err == nil || !errors.Is(err, slack.ErrRefused) {
			return err
		}
		r.Log.Warn("Slack does not take pictures; they are linked", "run", r.run.Name(), "err", err)
		why = "Slack did not take the pictures."
		var refused *slack.RefusedError
		if errors.As(err, &refused) && refused.Needed != "" {
			why = "Slack did not take the pictures: the app lacks the scope " + render.CodeSpan(refused.Needed, 40) + "."
		}
		rest = append(shown, rest...)
	}
	_, err = r.Slack.Post(ctx, r.address(render.LinkedPictures(why, rest, recorded, links), partPictures), r.look)
	if refusedHere(err) {
		// The result stands there, with what the checks came to.
		r.Log.Error("cannot post links to pictures", "run", r.run.Name(), "err", err)
		return nil
	}
	return err
}

// slackTitleMax is what Slack shows of a file's title.
const slackTitleMax = 250
