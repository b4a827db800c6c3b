package gateway

import (
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Bases are the manifests of a repository's bases, newest first.
type Bases struct {
	// Key is the public key of the signatures, as a line of an allowed_signers file. `ssh-keygen -Y verify -n
	// ramus-base -I ramus` verifies a manifest without ramus.
	Key   string        `json:"key"`
	Bases []CheckedBase `json:"bases"`
}

// CheckedBase is a manifest that the server has checked with its own key and the repository.
type CheckedBase struct {
	gitd.SignedBase
	Valid   bool   `json:"valid"`
	Problem string `json:"problem,omitempty"` // the reason if Valid is false
}

type basesQuery struct {
	Max int `json:"max,omitempty" jsonschema:"at most so many; 100 if 0, 1000 at most"`
}

func (api *reposAPI) bases(c *route.Call) error {
	var q basesQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := api.find.PathRepo(c)
	if err != nil {
		return err
	}
	if err := api.find.CheckBase(c.R.Context(), c.Who, r.Name(), ""); err != nil {
		return err
	}
	list, err := r.Bases(c.R.Context(), min(q.Max, 1000))
	if err != nil {
		return err
	}
	out := Bases{Key: api.Git.BaseKey(), Bases: []CheckedBase{}}
	for _, b := range list {
		checked := CheckedBase{SignedBase: b, Valid: true}
		if err := r.CheckBase(c.R.Context(), b.Hash); err != nil {
			if ctx := c.R.Context(); ctx.Err() != nil {
				return ctx.Err()
			}
			checked.Valid, checked.Problem = false, err.Error()
		}
		out.Bases = append(out.Bases, checked)
	}
	return c.Reply(out)
}

// RefreshRepo is a request to refresh a base.
type RefreshRepo struct {
	// Commit is the new commit of the base. If it is empty, the newest commit of upstream is used.
	Commit gitd.Hash `json:"commit,omitempty"`
	// Repair repairs a base that has diverged: "rebase" replays its own commits on upstream's, "reset" leaves them out.
	// A ref keeps them. Only administrators may.
	Repair gitd.Repair `json:"repair,omitempty"`
	// Wait delays the answer until the dependencies of the base are in the cache. Otherwise they are fetched after the
	// answer.
	Wait bool `json:"wait,omitempty"`
	// By is the committer of the commits that a repair replays. Only administrators name somebody else.
	By gitd.Person `json:"by,omitzero"`
}
