package replica

import (
	"fmt"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// Loss is the loss of a repository with the volume of its replica.
type Loss struct {
	Repo    string `json:"repo"`
	Replica string `json:"replica"`
	// Backup is when the backup was made from which the repository was restored. Zero means that no backup has it, so all of it is
	// lost.
	Backup time.Time `json:"backup,omitzero"`
	// Changed is when the repository was changed last, as far as the lease of its replica says. Zero means that it names no change.
	Changed time.Time `json:"changed,omitzero"`
	// Seen is the last renewal of that lease by the process that had the volume. Changes after it are not named.
	Seen time.Time `json:"seen,omitzero"`
}

// Whole reports whether all of the repository is lost.
func (l Loss) Whole() bool { return l.Backup.IsZero() }

// String describes the loss in a sentence.
func (l Loss) String() string {
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
	if l.Whole() {
		return fmt.Sprintf("%s is lost with the volume of %s, and no backup has it", l.Repo, l.Replica)
	}
	text := fmt.Sprintf("%s was restored on %s from the backup of %s; later pushes and commits are lost", l.Repo, l.Replica, at(l.Backup))
	if !l.Changed.IsZero() {
		text += ", the last of them at " + at(l.Changed)
	}
	return text
}

// Lost returns the error of a repository that is lost, and nil for all others.
func (f *Front) Lost(repo string) error {
	for _, l := range f.Losses {
		if l.Repo != repo || !l.Whole() {
			continue
		}
		if _, err := f.Git.Repo(repo); err == nil {
			return nil // it was restored by hand
		}
		if owner, ok := f.Group.Find(repo); !ok || !owner.Self {
			return nil // its name was given up, or another replica has it
		}
		return object.Refuse(gitd.ErrElsewhere, "%v; `ramus repo rm` gives its name up", l)
	}
	return nil
}

// answerLost returns the handler of a request for a repository that is lost, or nil. The request that gives its name up is not refused.
func (f *Front) answerLost(r *http.Request, repo string) http.Handler {
	err := f.Lost(repo)
	if err == nil || r.Method == http.MethodDelete {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeUnavailable(w, r, err.Error()) })
}

// losses answers with the losses of all replicas.
func (api *API) losses(c *route.Call) error {
	if api.Front == nil {
		return c.Reply([]Loss{})
	}
	ctx, lack := gather.Collect(c.R.Context())
	parts, err := api.question.Ask(ctx, c.Who, struct{}{})
	if err != nil {
		return err
	}
	all := []Loss{}
	for _, p := range parts {
		all = append(all, p.Answer...)
	}
	gather.SetMissing(c.W.Header(), lack.Names())
	return c.Reply(all)
}
