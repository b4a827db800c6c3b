package seal

import (
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Ref is the ref of a chain. Its commit is the last link.
const Ref = "refs/ramus/seals"

// Principal is the name of the signer of seals in files of allowed signers.
const Principal = "ramus-seals"

// The trailers of links, and TrailerAfter of seals. The value of TrailerSeal is a commit, a ref and the SHA-256 of the
// manifest, that of TrailerPruned, TrailerAdopted and TrailerImport a commit and a ref, and that of TrailerAfter a link.
const (
	TrailerSeal    = "Ramus-Seal"
	TrailerPruned  = "Ramus-Pruned"
	TrailerAdopted = "Ramus-Adopted"
	TrailerImport  = "Ramus-Import"
	TrailerAfter   = "Ramus-Seal-After"
)

// Kind is the kind of a link.
type Kind string

// The kinds.
const (
	Sealed  Kind = "sealed"  // the ref of the run was moved to the commit
	Pruned  Kind = "pruned"  // the ref of the run may be gone
	Adopted Kind = "adopted" // the ref was at the commit when the chain began
	Import  Kind = "import"  // the run came from another server, which sealed it or not
)

// Entry is one statement of a link.
type Entry struct {
	Kind     Kind
	Commit   gitd.Hash
	Ref      string
	Manifest string // SHA-256 of the manifest, in hexadecimal; only of Sealed
}

// Link is one commit of a chain.
type Link struct {
	Commit, Before gitd.Hash // Before is empty for the first one
	Time           time.Time
	Entries        []Entry
}

var trailers = map[Kind]string{Sealed: TrailerSeal, Pruned: TrailerPruned, Adopted: TrailerAdopted, Import: TrailerImport}

// message returns the message of a link. The refs that move together with the entries are no trailers, because a branch may be
// deleted later.
func message(subject string, entries []Entry, with ...gitd.Ref) string {
	var b strings.Builder
	b.WriteString(subject + "\n\n")
	for _, w := range with {
		fmt.Fprintf(&b, "with %s %s\n", w.Hash, w.Name)
	}
	if len(with) > 0 {
		b.WriteString("\n")
	}
	for _, e := range entries {
		b.WriteString(strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", trailers[e.Kind], e.Commit, e.Ref, e.Manifest)) + "\n")
	}
	return b.String()
}

// parseEntries returns the entries of the message of a link.
func parseEntries(message string) ([]Entry, error) {
	var list []Entry
	for line := range strings.Lines(message) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		if !ok {
			continue
		}
		for kind, name := range trailers {
			if key != name {
				continue
			}
			words := strings.Split(value, " ")
			e := Entry{Kind: kind, Commit: gitd.Hash(words[0])}
			want := 2
			if kind == Sealed {
				want = 3
			}
			if len(words) != want || gitd.CheckHash(e.Commit) != nil || !strings.HasPrefix(words[1], record.RunsPrefix+"/") ||
				gitd.CheckRef(words[1]) != nil {
				return nil, fmt.Errorf("the trailer %.300q cannot be read", strings.TrimSpace(line))
			}
			if e.Ref = words[1]; kind == Sealed {
				e.Manifest = words[2]
			}
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it names no seal")
	}
	return list, nil
}

// parseWith returns the refs that moved together with the entries of a link.
func parseWith(message string) []gitd.Ref {
	var list []gitd.Ref
	for line := range strings.Lines(message) {
		words := strings.Split(strings.TrimRight(line, "\n"), " ")
		if len(words) == 3 && words[0] == "with" && gitd.CheckHash(gitd.Hash(words[1])) == nil && gitd.CheckRef(words[2]) == nil {
			list = append(list, gitd.Ref{Name: words[2], Hash: gitd.Hash(words[1])})
		}
	}
	return list
}

// after returns the link that a seal names as the one before its own. Returns "" if it names none.
func after(message string) gitd.Hash {
	for line := range strings.Lines(message) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), TrailerAfter+": "); ok {
			return gitd.Hash(value)
		}
	}
	return ""
}
