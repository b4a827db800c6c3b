package export

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// The refs and files that only an export has.
const (
	// Refs begins the ref of the manifest's commit. The caller's slug follows.
	Refs = "refs/ramus/export"
	// ManifestFile is the manifest in that commit.
	ManifestFile = "ramus-export.json"
	// tags begins the tags by which a clone has the same commits as the refs of ramus.
	tags = "refs/tags/ramus/"

	artifactFolder = "artifacts/"
	terminalFolder = "terminals/"

	format = 1
	// MaxManifest bounds a manifest, in bytes.
	MaxManifest = 8 << 20
	maxRuns     = 10_000
	maxText     = 1000
)

// Manifest lists the contents of an export. That of a file from somebody else is hostile.
type Manifest struct {
	Format int `json:"format"` // 1
	// Origin is the server's address as people reach it, empty if it has none.
	Origin  string    `json:"origin,omitempty"`
	Version string    `json:"version"` // of the server
	By      string    `json:"by"`      // who exported it
	Time    time.Time `json:"time"`

	Caller     record.Caller `json:"caller"`
	Repo       string        `json:"repo"`
	Branch     string        `json:"branch"`
	Head       gitd.Hash     `json:"head"`
	Base       string        `json:"base"`
	BaseCommit gitd.Hash     `json:"base_commit,omitempty"`
	Private    bool          `json:"private,omitempty"` // on its server only its owner sees it

	Runs      []Run      `json:"runs"` // the oldest first
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Terminals []Terminal `json:"terminals,omitempty"`
	// LeftOut are sentences about work that the export lacks.
	LeftOut []string `json:"left_out,omitempty"`
}

// Run is a run of an export.
type Run struct {
	ID    string       `json:"id"`
	Kind  record.Kind  `json:"kind"`
	State record.State `json:"state"`
	// Record is the commit with the record. It is empty if the run had not ended and never waited.
	Record gitd.Hash `json:"record,omitempty"`
}

// Artifact is a file of the artifact store. It is at artifacts/SHA256.
type Artifact struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Terminal is the recording of a terminal.
type Terminal struct {
	Run  string `json:"run"`  // the id
	File string `json:"file"` // in the manifest's commit
}

// ParseManifest reads a manifest from outside. The error wraps [record.ErrInvalid].
func ParseManifest(text []byte) (Manifest, error) {
	var m Manifest
	if len(text) > MaxManifest {
		return m, fmt.Errorf("%w manifest: it has more than %d bytes", record.ErrInvalid, MaxManifest)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w manifest: %w", record.ErrInvalid, err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("%w manifest: %w", record.ErrInvalid, err)
	}
	return m, nil
}

func (m Manifest) check() error {
	switch {
	case m.Format != format:
		return fmt.Errorf("its format is %d, and this server knows %d", m.Format, format)
	case m.Caller.IsZero():
		return fmt.Errorf("it names no caller")
	case m.Branch != m.Caller.Branch():
		return fmt.Errorf("the branch of %s is not %.200q", m.Caller, m.Branch)
	case gitd.CheckHash(m.Head) != nil || m.BaseCommit != "" && gitd.CheckHash(m.BaseCommit) != nil:
		return fmt.Errorf("it names a commit that is none")
	case gitd.CheckRef("refs/heads/"+m.Base) != nil:
		return fmt.Errorf("its base %.200q is no name of a branch", m.Base)
	case len(m.Runs) > maxRuns || len(m.Artifacts) > maxRuns || len(m.Terminals) > maxRuns || len(m.LeftOut) > maxRuns:
		return fmt.Errorf("a list has more than %d entries", maxRuns)
	case len(m.Origin) > maxText || len(m.By) > maxText || len(m.Version) > maxText || len(m.Repo) > maxText:
		return fmt.Errorf("a text is longer than %d bytes", maxText)
	}
	ids := make(map[string]bool)
	for _, r := range m.Runs {
		if !record.ValidID(r.ID) || ids[r.ID] {
			return fmt.Errorf("%.200q is no id of a run, or is there twice", r.ID)
		}
		ids[r.ID] = true
		if r.Record != "" && gitd.CheckHash(r.Record) != nil {
			return fmt.Errorf("the record of %s is no commit", r.ID)
		}
	}
	for _, a := range m.Artifacts {
		if !isSum(a.SHA256) || a.Size < 0 {
			return fmt.Errorf("%.200q is no SHA-256 of an artifact", a.SHA256)
		}
	}
	return nil
}

// isSum reports whether a text is a SHA-256 in lower-case hexadecimal digits.
func isSum(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(text) == 64
}
