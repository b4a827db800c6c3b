package standby

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/durable"
)

// EpochRef is the ref of the epoch in the repository ramus-people. Each commit has the epoch before it as its parent.
const EpochRef = "refs/ramus/epoch"

const (
	epochFile = "epoch.json"
	epochMax  = 4 << 10 // bytes of an epoch or a fence
)

// Epoch numbers the servers of the same data. A server that was never promoted has the epoch 1.
type Epoch struct {
	Number uint64 `json:"epoch"`
	// ID distinguishes two servers that were promoted from the same epoch.
	ID string    `json:"id,omitempty"`
	At time.Time `json:"at,omitzero"` // when it began
	By string    `json:"by,omitempty"`
}

// Over reports whether a server of epoch e takes the place of one of epoch f. Of two epochs with one number it is the
// one with the greater ID.
func (e Epoch) Over(f Epoch) bool {
	return cmp.Or(cmp.Compare(e.Number, f.Number), cmp.Compare(e.ID, f.ID)) > 0
}

// ReadEpoch returns the epoch of a server's data.
func ReadEpoch(ctx context.Context, git *gitd.Server) (Epoch, error) {
	e, _, err := readEpoch(ctx, git)
	return e, err
}

func readEpoch(ctx context.Context, git *gitd.Server) (e Epoch, tip gitd.Hash, err error) {
	first := Epoch{Number: 1}
	repo, err := git.Repo(gitd.PeopleRepo)
	if errors.Is(err, gitd.ErrNotFound) {
		return first, "", nil
	}
	if err == nil {
		tip, err = repo.Resolve(ctx, EpochRef)
	}
	if errors.Is(err, gitd.ErrNotFound) {
		return first, "", nil
	}
	var b []byte
	if err == nil {
		b, err = repo.ReadFile(ctx, string(tip), epochFile, epochMax)
	}
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err == nil && e.Number == 0 {
		err = record.ErrDamaged
	}
	if err != nil {
		return e, "", fmt.Errorf("cannot read the epoch at %s of %s: %w", EpochRef, gitd.PeopleRepo, err)
	}
	return e, tip, nil
}

// RaiseEpoch begins the next epoch of a server's data, and returns it when it is on disk.
func RaiseEpoch(ctx context.Context, git *gitd.Server, now time.Time, by string) (Epoch, error) {
	e, tip, err := readEpoch(ctx, git)
	if err != nil {
		return e, err
	}
	repo, err := git.Repo(gitd.PeopleRepo)
	if errors.Is(err, gitd.ErrNotFound) {
		repo, err = git.Create(ctx, gitd.PeopleRepo)
	}
	if err != nil {
		return e, err
	}
	e = Epoch{Number: e.Number + 1, ID: rand.Text(), At: now.UTC(), By: by}
	b, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return e, err
	}
	who := gitd.Person{Name: "ramus", Email: "ramus@localhost"}
	c := gitd.NewCommit{Put: []gitd.File{{Path: epochFile, Content: append(b, '\n')}}, Author: who, Committer: who,
		When: now, Message: fmt.Sprintf("Begin epoch %d\n", e.Number)}
	if tip != "" {
		c.Parents = []gitd.Hash{tip}
	}
	h, err := repo.WriteCommit(ctx, c)
	if err == nil {
		err = repo.Update(ctx, gitd.RefUpdate{Name: EpochRef, New: h, Old: &tip})
	}
	if err != nil {
		return e, fmt.Errorf("cannot begin epoch %d: %w", e.Number, err)
	}
	return e, nil
}

// Fence tells a server that another one took its place. It is an error of the kind [gitd.ErrFenced].
type Fence struct {
	Epoch uint64 `json:"epoch"`
	ID    string `json:"id,omitempty"` // of the epoch
	// By names the server that has the epoch, as a URL if it is known.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
}

func (f *Fence) Error() string {
	by := ""
	if f.By != "" {
		by = ": " + f.By
	}
	return fmt.Sprintf("this server refuses all work: another one began epoch %d and took its place%s", f.Epoch, by)
}

// epoch returns the epoch that the fence is for.
func (f *Fence) epoch() Epoch { return Epoch{Number: f.Epoch, ID: f.ID} }

// Unwrap returns an error with the kind and a text for git clients.
func (f *Fence) Unwrap() error { return object.Refuse(gitd.ErrFenced, "%s", f.Error()) }

// unconfirmed returns an error of the kind [gitd.ErrUnconfirmed] with a text for git clients.
func unconfirmed(text string) error { return object.Refuse(gitd.ErrUnconfirmed, "%s", text) }

// Folder is the folder in a data folder that has the state of following and of fences. No copy has it.
const Folder = "standby"

const (
	peersName  = "peers.json"
	fenceName  = "fenced.json"
	followName = "follow.json"
)

// CheckPlace returns an error if a data folder may not be that of a server. Another server has taken its place, or it
// follows one.
func CheckPlace(data string) error {
	f, err := ReadFence(data)
	if err != nil {
		return err
	}
	if f != nil {
		return f
	}
	var s Source
	err = readState(data, followName, &s)
	if err == nil {
		return fmt.Errorf("%w: this data folder follows %s; `ramus promote` makes it the server", record.ErrConflict, s.Of)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ReadSource returns the server that a data folder follows. Its address is empty if there is none.
func ReadSource(data string) (s Source, err error) {
	if err = readState(data, followName, &s); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

// ReadFence returns the fence of a data folder, or nil if no other server has taken its place.
func ReadFence(data string) (*Fence, error) {
	f := new(Fence)
	err := readState(data, fenceName, f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// RaiseFence records the fence of a data folder, unless it has one that is as high. It returns the one that it has then,
// when that is on disk. Only one process may use the folder.
func RaiseFence(data string, f Fence) (*Fence, error) {
	is, err := ReadFence(data)
	if err == nil && (is == nil || f.epoch().Over(is.epoch())) {
		is, err = &f, writeState(data, fenceName, f)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot record that another server took the place of this one: %w", err)
	}
	return is, nil
}

// Fence ends this server for a higher epoch. It returns when that is on disk.
func (l *Leader) Fence(f Fence) error {
	if l == nil {
		return nil
	}
	if !f.epoch().Over(l.epoch) {
		return fmt.Errorf("%w: this server is in epoch %d, and only a higher one than that ends it", record.ErrConflict,
			l.epoch.Number)
	}
	f.At = l.Now().UTC()
	if err := l.fence(f); !errors.Is(err, gitd.ErrFenced) {
		return err
	}
	return nil
}

// fence ends this server, and returns the error of all later work.
func (l *Leader) fence(f Fence) error {
	l.fenced.CompareAndSwap(nil, &f) // no work from now on, also if the disk is full
	l.fencing.Lock()
	is, err := RaiseFence(l.Data, f)
	if err == nil {
		l.fenced.Store(is)
	}
	l.fencing.Unlock()
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.wakeAll()
	l.mu.Unlock()
	l.once.Do(func() {
		if l.Log != nil {
			l.Log.Error("another server took the place of this one", "epoch", is.Epoch, "by", is.By)
		}
		if l.Ended != nil {
			l.Ended(is)
		}
	})
	return is
}

func readState(data, name string, into any) error {
	path := filepath.Join(data, Folder, name)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("cannot read %s: %w: %w", path, record.ErrDamaged, err)
	}
	return nil
}

func writeState(data, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dir := filepath.Join(data, Folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(dir, name), b, true); err != nil {
		return err
	}
	return durable.Folder(data)
}

func removeState(data, name string) error {
	dir := filepath.Join(data, Folder)
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.Folder(dir)
}

const (
	oldName      = "old.json"
	promotedName = "promoted.json"
)

// Promote makes the data folder of a follower that of a server, in the next epoch. git is over its repositories. Nobody
// else uses the folder.
func Promote(ctx context.Context, data string, git *gitd.Server, now time.Time, by string) (Epoch, error) {
	var s Source
	err := readState(data, followName, &s)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: this data folder follows no server", record.ErrConflict)
	}
	if err == nil {
		err = Applied(ctx, data, git)
	}
	if err == nil {
		err = dropMade(ctx, data, git)
	}
	if err != nil {
		return Epoch{}, fmt.Errorf("cannot promote: %w", err)
	}
	e, err := RaiseEpoch(ctx, git, now, by)
	if err == nil {
		err = addPeer(data, s.Of)
	}
	if err == nil {
		err = writeState(data, oldName, s)
	}
	if err == nil {
		err = writeState(data, promotedName, e)
	}
	if err == nil {
		err = removeState(data, followName)
	}
	if err != nil {
		return e, fmt.Errorf("cannot promote: %w", err)
	}
	return e, nil
}

// WasPromoted reports whether a data folder is that of a server, because its stand-by was promoted.
func WasPromoted(data string) bool {
	var e Epoch
	return readState(data, promotedName, &e) == nil && CheckPlace(data) == nil
}

// peersMax bounds the servers that are known, and urlMax the bytes of the URL of one.
const (
	peersMax = 8
	urlMax   = 500
)

// ReadPeers returns the URLs of the servers that followed this one, or that it followed, the newest first.
func ReadPeers(data string) (urls []string, err error) {
	err = readState(data, peersName, &urls)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return urls, err
}

// addPeer records the URL of a server.
func addPeer(data, url string) error {
	urls, err := ReadPeers(data)
	if err != nil || len(urls) > 0 && urls[0] == url {
		return err
	}
	urls = slices.DeleteFunc(urls, func(u string) bool { return u == url })
	urls = append([]string{url}, urls...)
	return writeState(data, peersName, urls[:min(len(urls), peersMax)])
}

// ReadPredecessor returns the server that a promoted one has followed, and that does not know of it yet. Its zero value
// means none.
func ReadPredecessor(data string) (Source, error) {
	var s Source
	err := readState(data, oldName, &s)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

// ForgetPredecessor records that the server before this one knows of its end.
func ForgetPredecessor(data string) error { return removeState(data, oldName) }
