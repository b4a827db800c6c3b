package index_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/record"
)

func newRun(t testing.TB, repo, caller, id string) record.Run {
	t.Helper()
	c, err := record.ParseCaller(caller)
	if err != nil {
		t.Fatal(err)
	}
	return record.Run{Repo: repo, Caller: c, ID: id, State: record.StateRunning}
}

func open(t testing.TB, path string) (ix *index.Index, fresh bool) {
	t.Helper()
	ix, fresh, err := index.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return ix, fresh
}

// TestIndex compares an index with a map while runs are put and removed and the file is opened again and rebuilt.
func TestIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	rnd := rand.New(rand.NewPCG(1, 2))
	ix, fresh := open(t, path)
	if !fresh {
		t.Error("a new file is not fresh")
	}
	want := map[string]record.Run{}
	model := func() (list []record.Run) {
		for _, r := range want {
			list = append(list, r)
		}
		slices.SortFunc(list, func(a, b record.Run) int {
			key := func(r record.Run) string { return r.Repo + "\x00" + r.Caller.Slug() + "\x00" + r.ID }
			return strings.Compare(key(a), key(b))
		})
		return list
	}
	for n := range 300 {
		r := newRun(t, fmt.Sprint("repo", rnd.IntN(2)), fmt.Sprint("run:c", rnd.IntN(4)), fmt.Sprint("id", rnd.IntN(4)))
		r.Error = fmt.Sprint(n)
		key := r.Repo + r.Name()
		switch rnd.IntN(10) {
		case 0, 1, 2:
			delete(want, key)
			if err := ix.Remove(r); err != nil {
				t.Fatal(err)
			}
		case 3:
			if err := ix.Close(); err != nil {
				t.Fatal(err)
			}
			ix, _ = open(t, path)
			if err := ix.Load(); err != nil {
				t.Fatal(err)
			}
		case 4:
			if got, err := ix.Rebuild(func() ([]record.Run, error) { return model(), nil }); err != nil || got != len(want) {
				t.Fatalf("rebuilt with %d runs: %v", got, err)
			}
		default:
			want[key] = r
			if err := ix.Put(r); err != nil {
				t.Fatal(err)
			}
		}
		if got, list := ix.All(), model(); len(got) != len(list) || len(list) > 0 && !reflect.DeepEqual(got, list) {
			t.Fatalf("step %d: %+v, want %+v", n, got, list)
		}
		ofCaller, here := ix.OfCaller(r.Caller), 0
		for _, other := range want {
			if other.Caller == r.Caller {
				here++
			}
		}
		if len(ofCaller) != here {
			t.Fatalf("step %d: %d runs of %s, want %d", n, len(ofCaller), r.Caller, here)
		}
		_, inZero := want["repo0"+r.Name()]
		_, inOne := want["repo1"+r.Name()]
		if got, ok := ix.Get(r.Caller, r.ID); ok != (inZero || inOne) || ok && want[got.Repo+got.Name()].Error != got.Error {
			t.Fatalf("step %d: %s is %+v, %t", n, r.Name(), got, ok)
		}
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	if ix, fresh = open(t, path); fresh {
		t.Error("a rebuilt file is fresh")
	}
	_ = ix.Close()
}

// TestClaims checks that a claim is found until its run is put, also after the file is rebuilt.
func TestClaims(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	ix, _ := open(t, path)
	one, two := newRun(t, "repo", "run:a", "one"), newRun(t, "repo", "run:a", "two")
	for _, r := range []record.Run{one, two} {
		if err := ix.Claim(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.Put(two); err != nil {
		t.Fatal(err)
	}
	if _, err := ix.Rebuild(func() ([]record.Run, error) { return []record.Run{two}, nil }); err != nil {
		t.Fatal(err)
	}
	refs, err := ix.Claimed()
	if want := [][2]string{{"repo", record.RunRef(one.Caller, one.ID)}}; err != nil || !reflect.DeepEqual(refs, want) {
		t.Errorf("%v, %v, want %v", refs, err, want)
	}
	if refs, err = ix.Claimed(); err != nil || len(refs) != 0 {
		t.Errorf("claimed twice: %v, %v", refs, err)
	}
	if _, err := ix.Rebuild(func() ([]record.Run, error) { return nil, os.ErrPermission }); !errors.Is(err, os.ErrPermission) {
		t.Errorf("runs that cannot be read: %v", err)
	}
	if got := ix.All(); len(got) != 1 {
		t.Errorf("a rebuild that failed left %d runs", len(got))
	}
	_ = ix.Close()
}

// TestDamage changes each byte of the file in turn. Load returns the run that was put, or an error.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "index.db")
	ix, _ := open(t, path)
	run := newRun(t, "repo", "run:a", "one")
	if err := errors.Join(ix.Put(run), ix.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	errs := 0
	for at := 0; at < len(text); at += 7 {
		if text[at] == 0 {
			continue
		}
		damaged := slices.Clone(text)
		damaged[at] ^= 0x55
		name := filepath.Join(dir, "damaged.db")
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		ix, fresh, err := index.Open(name)
		if err == nil {
			if err = ix.Load(); err == nil {
				// A file that lost its pages is as a new one, which is rebuilt from the refs.
				if got := ix.All(); len(got) != 0 && !reflect.DeepEqual(got, []record.Run{run}) || len(got) == 0 && !fresh {
					t.Errorf("byte %d: %+v", at, got)
				}
			}
			_ = ix.Close()
		}
		if err != nil {
			errs++
		}
	}
	if errs == 0 {
		t.Error("no damage was noticed")
	}
}
