// Package submodule serves the submodules of a repository at the doors of its containers.
//
// # Nouns
//
// A [Door] is the part of a container's door that leads to other repositories of the server. The configuration of the
// server lists them. The file .gitmodules lists nothing, because everybody who may change it would choose what
// containers read.
//
// # Invariants
//
// A container reads the base and the tags of a listed repository, and nothing else in it. It writes nothing there.
package submodule

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Door serves the repositories that containers of another one may read. Its fields are its options.
type Door struct {
	Git *gitd.Server
	// Repo is the repository of the container, and Subject its caller.
	Repo, Subject string
	// Listed are the repositories that it may read.
	Listed []string
	// Now is the clock.
	Now func() time.Time
}

// Serve answers a request for another repository. It returns false if the request is for none.
func (d Door) Serve(w http.ResponseWriter, r *http.Request) bool {
	name, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git/")
	if !ok || !gitd.Serves(r.URL.Path) || gitd.CheckName(name) != nil {
		return false
	}
	if !slices.Contains(d.Listed, name) {
		// The answer does not tell whether the repository exists.
		http.Error(w, fmt.Sprintf("ramus: containers of %s may not read %s; repos.%[1]s.submodules in the configuration lists those that they may", d.Repo, name),
			http.StatusForbidden)
		return true
	}
	d.Git.DoorHandler(func() gitd.Grant { return d.grant(r, name) }, nil).ServeHTTP(w, r)
	return true
}

// grant returns the right to read the base and the tags of a repository.
func (d Door) grant(r *http.Request, name string) gitd.Grant {
	g := gitd.Grant{Subject: d.Subject, Repo: name, Read: []string{"refs/tags/*"}, Scopes: []string{gitd.ScopeRead},
		Expires: d.Now().Add(24 * time.Hour)}
	repo, err := d.Git.Repo(name)
	if err != nil {
		return g
	}
	if base, err := repo.Base(r.Context()); err == nil {
		g.Read = append(g.Read, "refs/heads/"+base)
	}
	return g
}
