package secret

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/executor/record"
)

// Owner is the party that a secret belongs to, "server", "repo:NAME", "person:ID" or "run:CALLER/RUN". The zero value is
// none.
type Owner string

// OfServer is the owner of the secrets that all repositories may use.
const OfServer Owner = "server"

const (
	ofRepo   = "repo:"
	ofPerson = "person:"
	ofRun    = "run:"
)

// OfRepo returns the owner of the secrets of a repository, and OfServer for an empty name.
func OfRepo(name string) Owner {
	if name == "" {
		return OfServer
	}
	return Owner(ofRepo + name)
}

// OfPerson returns the owner of the secrets of a person, by the person's stable id.
func OfPerson(id string) Owner { return Owner(ofPerson + id) }

// OfRun returns the owner of the secrets that one run was handed, by the run's name (CALLER/RUN).
func OfRun(name string) Owner { return Owner(ofRun + name) }

// Repo returns the repository of OfRepo, or "".
func (o Owner) Repo() string { return o.after(ofRepo) }

// Person returns the person's id of OfPerson, or "".
func (o Owner) Person() string { return o.after(ofPerson) }

// Run returns the run's name of OfRun, or "".
func (o Owner) Run() string { return o.after(ofRun) }

func (o Owner) after(prefix string) string {
	if rest, ok := strings.CutPrefix(string(o), prefix); ok {
		return rest
	}
	return ""
}

// Check returns [record.ErrInvalid] for a text that is no owner.
func (o Owner) Check() error {
	name := o.Repo() + o.Person() + o.Run()
	if o != OfServer && name == "" || len(o) > 300 || strings.ContainsFunc(string(o), unicode.IsControl) {
		return fmt.Errorf("%w owner %.100q: want server, repo:NAME or person:ID", record.ErrInvalid, string(o))
	}
	return nil
}
