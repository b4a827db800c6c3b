package secret

import (
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
)

// The secrets of one run come with its request, are sealed when it is claimed, and are removed when it ends. The methods for them
// may be called of a nil Store, which keeps none.

// maxHanded bounds the secrets that come with one request.
const maxHanded = 20

// TakeHanded takes the secrets out of a request. From then on their values are removed from everything that is kept,
// the request included.
func (s *Store) TakeHanded(r *record.Request) ([]record.HandedSecret, error) {
	handed := r.Secrets
	r.Secrets = nil
	if len(handed) == 0 {
		return nil, nil
	}
	if s == nil || len(handed) > maxHanded {
		return nil, fmt.Errorf("%w request: a run gets at most %d secrets, and none if the server keeps none",
			record.ErrInvalid, maxHanded)
	}
	list, values := ofHanded("check", handed)
	return handed, s.Check(list, values)
}

// ofHanded returns the secrets of a run as the store keeps them.
func ofHanded(run string, handed []record.HandedSecret) (list []Secret, values []string) {
	for _, h := range handed {
		list = append(list, Secret{Name: h.Name, Owner: OfRun(run), Hosts: h.Hosts})
		values = append(values, h.Value)
	}
	return list, values
}

// PutHanded seals the secrets of a claimed run until it ends.
func (s *Store) PutHanded(run record.Run, handed []record.HandedSecret) error {
	if len(handed) == 0 {
		return nil
	}
	list, values := ofHanded(run.Name(), handed)
	_, err := s.Put(list, values)
	return err
}

// DropHanded removes the secrets of a run that has ended.
func (s *Store) DropHanded(r record.Run) error {
	if len(r.Secrets) == 0 || !r.Ended() || s == nil {
		return nil
	}
	return s.RemoveOf(OfRun(r.Name()))
}

// SweepHanded removes the secrets of runs that have ended, and of runs that are not known. all are those that are known.
func (s *Store) SweepHanded(all []record.Run) error {
	if s == nil {
		return nil
	}
	open := make(map[string]bool)
	for _, r := range all {
		open[r.Name()] = !r.Ended()
	}
	return s.RemoveRuns(func(run string) bool { return open[run] })
}

// LostHanded reports whether a secret of a run was lost with an earlier process.
func (s *Store) LostHanded(r record.Run) bool {
	if s == nil {
		return false
	}
	for _, name := range r.Secrets {
		if _, err := s.Find(OfRun(r.Name()), name); errors.Is(err, record.ErrNotFound) {
			return true
		}
	}
	return false
}
