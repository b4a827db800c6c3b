package recall

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/gitd"
)

// Subject is everything that the result of a check depends on. Two checks with equal subjects have equal results.
type Subject struct {
	Tree gitd.Hash `json:"tree"` // of the files when the check begins
	// Task and Params call a task of the library. Shell or Args are a command in the folder Dir of the work tree.
	Task   string          `json:"task,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Shell  string          `json:"shell,omitempty"`
	Args   []string        `json:"args,omitempty"`
	Dir    string          `json:"dir,omitempty"`
	// Engine is the kind of container, and Image its image with a digest. Image is empty if the engine has no images.
	Engine string `json:"engine"`
	Image  string `json:"image,omitempty"`
	// Files are those of the base that describe containers.
	Files []gitd.Hash `json:"files,omitempty"`
	// Env is the environment that the server and the repository give each command, "K=V".
	Env []string `json:"env,omitempty"`
	// Dependencies are those that the container has in its cache.
	Dependencies []string `json:"dependencies,omitempty"`
	// Container describes the preparation of the container, its network and the programs next to it.
	Container json.RawMessage `json:"container,omitempty"`
	// Bare is set if the container did not run the commands that set it up.
	Bare bool `json:"bare,omitempty"`
}

// maxSubject bounds a subject as JSON, in bytes.
const maxSubject = 1 << 20

// ErrNoSubject is the error of a subject that does not determine a result.
var ErrNoSubject = errors.New("the result does not follow from what is known")

// Key returns the name of the results of the subject, 32 hexadecimal digits. Values that are equal as JSON have equal
// keys. Returns [ErrNoSubject] if the tree is not known, or there is nothing to run.
func (s Subject) Key() (string, error) {
	if s.Tree == "" || s.Task == "" && s.Shell == "" && len(s.Args) == 0 {
		return "", ErrNoSubject
	}
	var err error
	if s.Params, err = plain(s.Params); err == nil {
		s.Container, err = plain(s.Container)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoSubject, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	if len(text) > maxSubject {
		return "", fmt.Errorf("%w: it has %d bytes", ErrNoSubject, len(text))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// plain returns JSON with the fields of objects in order. Nothing, null and an empty object are equal.
func plain(text json.RawMessage) (json.RawMessage, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); v == nil || ok && len(m) == 0 {
		return nil, nil
	}
	return json.Marshal(v)
}
