package ownership

import (
	"context"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// Owner is the view of one replica of the owners of repositories. All methods are safe for concurrent use.
type Owner interface {
	// Check returns nil if this replica owns a repository, and may acknowledge a change of it now. The error is of the kind
	// [gitd.ErrElsewhere] if another replica owns it, and otherwise of the kind [gitd.ErrFenced].
	Check(ctx context.Context, repo string) error
	// Claim makes this replica the owner of a new repository. The error is [gitd.ErrExists] if another replica has one of that
	// name.
	Claim(ctx context.Context, repo string) error
	// Drop ends the ownership of a repository that was removed.
	Drop(ctx context.Context, repo string) error
	// Find returns the replica that owns a repository. Returns false if nobody does.
	Find(repo string) (Replica, bool)
	// Self returns this replica.
	Self() Replica
	// Replicas returns all replicas, sorted by name.
	Replicas() []Replica
}

// Replica describes one replica.
type Replica struct {
	Name string `json:"name"`
	// URL is the address at which other replicas reach it. It is empty if no process holds its lease.
	URL string `json:"url,omitempty"`
	// Epoch counts the processes that were this replica.
	Epoch uint64 `json:"epoch"`
	// Live reports whether a process holds its lease. A process that was killed counts until its lease ends.
	Live bool `json:"live"`
	// Self reports whether it is the replica that answers.
	Self bool `json:"self,omitempty"`
	// Repos is the number of its repositories.
	Repos int `json:"repos"`
}

// Alone is the owner of everything: an installation of one server.
type Alone struct{}

var _ Owner = Alone{}

func (Alone) Check(context.Context, string) error { return nil }
func (Alone) Claim(context.Context, string) error { return nil }
func (Alone) Drop(context.Context, string) error  { return nil }
func (Alone) Find(string) (Replica, bool)         { return Alone{}.Self(), true }
func (Alone) Self() Replica                       { return Replica{Epoch: 1, Live: true, Self: true} }
func (Alone) Replicas() []Replica                 { return []Replica{Alone{}.Self()} }

// fenced returns an error of the kind [gitd.ErrFenced] with a text for git clients.
func fenced(format string, args ...any) error { return object.Refuse(gitd.ErrFenced, format, args...) }

// elsewhere returns an error of the kind [gitd.ErrElsewhere] with a text for git clients.
func elsewhere(format string, args ...any) error {
	return object.Refuse(gitd.ErrElsewhere, format, args...)
}
