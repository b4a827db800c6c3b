package chat

import (
	"context"
	"errors"

	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// partPictures is the part of the message that links the pictures of a run that Slack did not take. The message that
// shows the pictures has no mark. It is found by the names of its files.
const partPictures = "pictures"

// showPictures posts pictures and films of the pages of a run into its thread, in one message, with links to the others
// and to the traces. If Slack does not take pictures, the message has only links. showPictures can be repeated,
// because it finds the messages that it posted before.
func (r *reporter) showPictures(ctx context.Context) error {
	if r.evidence == nil {
		return nil
	}
	shown, rest := render.Pictures(r.evidence)
	films, linked := render.Films(r.evidence, shown)
	shown, rest = append(shown, films...), append(linked, rest...)
	recorded := render.Traces(r.evidence)
	if len(shown)+len(rest)+len(recorded) == 0 || len(shown) == 0 && r.worker.chat.Links == nil {
		return nil
	}
	if r.searchFirst {
		if _, found, err := r.worker.chat.Slack.Find(ctx, r.m.Channel, r.m.ThreadTS, r.mark(partPictures)); found || err != nil {
			return err
		}
	}
	shown, contents, left, err := engineer.ReadPictures(ctx, r.worker.chat.Executor, r.run, shown)
	if err != nil {
		return err
	}
	rest = append(left, rest...)
	links := render.PictureLinks{}
	if r.worker.chat.Links != nil {
		links.File = func(name string) string { return r.worker.chat.Links.View(r.run.Name(), name) }
		links.Trace = func(name string) string { return r.worker.chat.Links.Trace(r.run.Name(), name) }
	}
	why := ""
	if len(shown) > 0 {
		share := slack.Share{Channel: r.m.Channel, ThreadTS: r.m.ThreadTS,
			Text: render.ShownPictures(shown, rest, recorded, links)}
		for i, p := range shown {
			caption := p.Caption(render.OneLine)
			share.Files = append(share.Files, slack.Upload{Name: render.PictureName(p, i+1, r.run.ID),
				Title: render.Cut(caption, slackTitleMax), Alt: caption, Content: contents[i]})
		}
		err := r.worker.chat.Slack.Share(ctx, share, r.searchFirst)
		if err == nil || !errors.Is(err, slack.ErrRefused) {
			return err
		}
		r.worker.chat.Log.Warn("Slack does not take pictures; they are linked", "run", r.run.Name(), "err", err)
		why = "Slack did not take the pictures."
		var refused *slack.RefusedError
		if errors.As(err, &refused) && refused.Needed != "" {
			why = "Slack did not take the pictures: the app lacks the scope " + render.CodeSpan(refused.Needed, 40) + "."
		}
		rest = append(shown, rest...)
	}
	_, err = r.worker.chat.Slack.Post(ctx, r.address(render.LinkedPictures(why, rest, recorded, links), partPictures),
		r.searchFirst)
	if refusedHere(err) {
		// The result with the outcome of the checks is in the thread already.
		r.worker.chat.Log.Error("cannot post links to pictures", "run", r.run.Name(), "err", err)
		return nil
	}
	return err
}

// slackTitleMax is the longest part of a file's title that Slack shows, in UTF-16 units.
const slackTitleMax = 250
