package layertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/proc"
)

func testOverlay(s *suite) {
	b := s.box // at its own target
	base := s.base(b.UID, "kept", "gone", "dir/a", "dir/b", "old/deep/file", "replaced/x", "empty/")
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	bound := s.bind(b, []string{base},
		layer.File{Path: "dir/c", Kind: layer.KindFile, Data: []byte("new"), Time: at},
		layer.File{Path: "gone", Kind: layer.KindWhiteout},
		layer.File{Path: "link", Kind: layer.KindLink, Data: []byte("dir/c")},
		layer.File{Path: "run", Kind: layer.KindFile, Exec: true, Data: []byte("#!/bin/sh\necho ran\n")},
		layer.File{Path: "made", Kind: layer.KindFolder},
	)
	got := s.sh(b, `find . | LC_ALL=C sort; cat kept link; ./run; stat -c %Y dir/c; id -u; stat -c '%u %a' . made dir/c run; test ! -e gone`)
	if want := ".\n./dir\n./dir/a\n./dir/b\n./dir/c\n./empty\n./kept\n./link\n./made\n./old\n./old/deep\n./old/deep/file\n./replaced\n./replaced/x\n./run\nkeptnewran\n981173106\n1000\n1000 755\n1000 755\n1000 644\n1000 755\n"; got != want {
		s.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.want(s.changes(bound), "d dir", "f dir/c 3", "w gone", "l link -> dir/c", "d made", "f run x 19")

	s.sh(b, `set -e
		echo more >>kept
		mv old renamed; echo y >renamed/deep/added
		rm -r replaced; mkdir replaced; echo z >replaced/y
		rm dir/a; mv dir moved; mv moved renamed/moved
		ln -s /etc/passwd secret; mkfifo pipe; chmod 600 run`)
	s.want(s.changes(bound), "w dir", "w gone", "f kept 9", "l link -> dir/c", "d made", "w old", "o pipe",
		"d renamed was old", "d renamed/deep", "f renamed/deep/added 2", "d renamed/moved was dir", "w renamed/moved/a",
		"f renamed/moved/c 3",
		"d replaced opaque", "f replaced/y 2", "f run 19", "l secret -> /etc/passwd")

	if err := s.k.Put(s.Context(), bound, []layer.File{
		{Path: "kept", Kind: layer.KindFile, Data: []byte("put")},
		{Path: "a/b/c", Kind: layer.KindFile, Exec: true, Data: []byte("#!/bin/sh\necho put\n")},
		{Path: "link", Kind: layer.KindLink, Data: []byte("kept")},
		{Path: "f", Kind: layer.KindFolder},
	}); err != nil {
		s.Fatal(err)
	}
	if got, want := s.sh(b, "cat link; a/b/c; stat -c '%u %g %a' a a/b kept f; ls -A"),
		"putput\n1000 1000 755\n1000 1000 755\n1000 1000 644\n1000 1000 755\na\nempty\nf\nkept\nlink\nmade\npipe\nrenamed\nreplaced\nrun\nsecret\n"; got != want {
		s.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, err := s.read(bound, "renamed/deep/added"); err != nil || got != "y\n" {
		s.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"secret", "pipe", "made", "link", "renamed/none", "../upper/kept", "/etc/passwd", "",
		"made/../kept", "a//b"} {
		if got, err := s.read(bound, path); err == nil {
			s.Errorf("%s: opened, %q", path, got)
		}
	}
	if _, err := s.read(bound, "renamed/none"); !errors.Is(err, fs.ErrNotExist) {
		s.Errorf("what is not there: %v", err)
	}
}

// testPlain tests that a tree without layers is a folder of the host, and can become a layer.
func testPlain(s *suite) {
	b := s.place()
	bound := s.bind(b, nil, layer.File{Path: "filled", Kind: layer.KindFile, Data: []byte("x")})
	if got := s.sh(b, "cd "+b.Target+`; stat -c %u .; echo inside >made; mkdir -p a/b; echo deep >a/b/c; cat filled`); got != "1000\nx" {
		s.Errorf("got %q", got)
	}
	s.want(s.changes(bound), "d a", "d a/b", "f a/b/c 5", "f filled 1", "f made 7")
	if err := s.k.Put(s.Context(), bound, []layer.File{{Path: "put", Kind: layer.KindFile, Data: []byte("put")}}); err != nil {
		s.Fatal(err)
	}
	if got := s.sh(b, "cat "+b.Target+"/put"); got != "put" {
		s.Errorf("got %q", got)
	}
	over := s.place()
	s.bind(over, []string{bound.Upper()})
	if got := s.sh(over, "cd "+over.Target+"; cat made; mv a x; cat x/b/c; rm made"); got != "inside\ndeep\n" {
		s.Errorf("over it: got %q", got)
	}
	if got := s.sh(b, "cd "+b.Target+"; cat made a/b/c"); got != "inside\ndeep\n" {
		s.Errorf("below: got %q", got)
	}
}

func testReadOnly(s *suite) {
	base := s.base(s.box.UID, "file")
	for _, lowers := range [][]string{{base}, nil} {
		b := s.place()
		bound := b.binding(lowers, layer.File{Path: "filled", Kind: layer.KindFile, Data: []byte("x")})
		bound.ReadOnly = true
		if err := s.k.Bind(s.Context(), bound); err != nil {
			s.Fatal(err)
		}
		got := s.sh(b, "cd "+b.Target+
			`; cat filled; for c in "touch new" "rm filled" "mkdir d" "chmod 777 ."; do $c 2>/dev/null && echo "$c can be done"; done; true`)
		if got != "x" {
			s.Errorf("got %q", got)
		}
		if err := s.k.Put(s.Context(), bound, []layer.File{{Path: "put", Kind: layer.KindFile}}); !errors.Is(err, unix.EROFS) {
			s.Errorf("Put: %v", err)
		}
	}
}

// testOrder tests that the first layer hides the second, and the upper both.
func testOrder(s *suite) {
	one, two := s.base(s.box.UID, "both", "one"), s.base(s.box.UID, "both", "two", "sub/two")
	if err := os.WriteFile(filepath.Join(two, "both"), []byte("hidden"), 0o644); err != nil {
		s.Fatal(err)
	}
	b := s.place()
	s.bind(b, []string{one, two}, layer.File{Path: "two", Kind: layer.KindFile, Data: []byte("upper")})
	if got := s.sh(b, "cd "+b.Target+"; cat both one two sub/two"); got != "bothoneuppersub/two" {
		s.Errorf("got %q", got)
	}
	many := make([]string, 11)
	for i := range many {
		many[i] = one
	}
	if err := s.k.Bind(s.Context(), s.place().binding(many)); err == nil {
		s.Error("11 layers can be bound")
	}
}

// testNames tests that names and targets of links are bytes.
func testNames(s *suite) {
	b := s.place()
	bound := s.bind(b, []string{s.base(b.UID)}, layer.File{Path: "\xff\xfe/\n", Kind: layer.KindFile, Data: []byte("x")})
	s.sh(b, "cd "+b.Target+"; touch \"$(printf 'a\\tb')\" ' ' '*' ..x \"$(printf '\\302\\240')\" \"$(printf '\\200')\"; ln -s \"$(printf '\\377/x')\" l; ln -s . \"$(printf '%0255d' 0)\"")
	s.want(s.changes(bound), "f   0", "f * 0", "f ..x 0", "l "+strings.Repeat("0", 255)+" -> .", "f a\tb 0",
		"l l -> \xff/x", "f \x80 0", "f \u00a0 0", "d \xff\xfe", "f \xff\xfe/\n 1")
	if got, err := s.read(bound, "\xff\xfe/\n"); err != nil || got != "x" {
		s.Errorf("%q, %v", got, err)
	}
}

func testLimits(s *suite) {
	b := s.place()
	bound := s.bind(b, []string{s.base(b.UID)})
	s.sh(b, "cd "+b.Target+"; mkdir a b; touch a/1 a/2 b/1")
	for max, want := range map[int]error{0: layer.ErrTooMany, 1: layer.ErrTooMany, 4: layer.ErrTooMany, 5: nil, 6: nil} {
		if list, err := s.k.Changes(s.Context(), bound.Upper(), max); !errors.Is(err, want) || err == nil && len(list) != 5 {
			s.Errorf("at most %d: %d entries, %v", max, len(list), err)
		}
	}
}

// testRefuses tests that a Keeper refuses requests that lead out of its folders or into other processes, and mounts
// nothing then.
func testRefuses(s *suite) {
	base := s.base(s.box.UID, "file")
	outside, err := os.MkdirTemp("", "outside")
	if err != nil {
		s.Fatal(err)
	}
	defer os.RemoveAll(outside)
	if err := os.Symlink(outside, filepath.Join(s.root, "link")); err != nil {
		s.Fatal(err)
	}
	defer os.Remove(filepath.Join(s.root, "link"))
	place := s.place()
	s.sh(place, "cd "+place.Target+"; mkdir real; ln -s real link; ln -s / root; touch file")
	good := place.binding([]string{base})
	count := func() string { return s.sh(place, "wc -l </proc/self/mountinfo") }
	before := count()
	for name, change := range map[string]func(b *layer.Binding){
		"layer outside":     func(b *layer.Binding) { b.Lowers = []string{outside} },
		"layer by a link":   func(b *layer.Binding) { b.Lowers = []string{filepath.Join(s.root, "link")} },
		"layer missing":     func(b *layer.Binding) { b.Lowers = []string{base, base + "x"} },
		"layer with dots":   func(b *layer.Binding) { b.Lowers = []string{s.root + "/../" + filepath.Base(outside)} },
		"the root":          func(b *layer.Binding) { b.Dir = s.root },
		"folder outside":    func(b *layer.Binding) { b.Dir = filepath.Join(outside, "caller") },
		"folder by a link":  func(b *layer.Binding) { b.Dir = filepath.Join(s.root, "link", "caller") },
		"relative folder":   func(b *layer.Binding) { b.Dir = "caller" },
		"target missing":    func(b *layer.Binding) { b.Target += "/none" },
		"target a link":     func(b *layer.Binding) { b.Target += "/link" },
		"target by a link":  func(b *layer.Binding) { b.Target += "/root/tmp" },
		"target a file":     func(b *layer.Binding) { b.Target += "/file" },
		"target relative":   func(b *layer.Binding) { b.Target = "tmp" },
		"target above root": func(b *layer.Binding) { b.Target = "/../../" + b.Target + "/none" },
		"this process":      func(b *layer.Binding) { b.PID, b.Start = os.Getpid(), startOf(s, os.Getpid()) },
		"process 1":         func(b *layer.Binding) { b.PID, b.Start = 1, startOf(s, 1) },
		"no process":        func(b *layer.Binding) { b.PID = 0 },
		"negative process":  func(b *layer.Binding) { b.PID = -1 },
		"another's number":  func(b *layer.Binding) { b.Start++ },
		"negative user":     func(b *layer.Binding) { b.UID = -1 },
		"fill outside":      func(b *layer.Binding) { b.Fill = []layer.File{{Path: "../x", Kind: layer.KindFile}} },
		"fill by a link": func(b *layer.Binding) {
			b.Fill = []layer.File{{Path: "l", Kind: layer.KindLink, Data: []byte(outside)},
				{Path: "l/x", Kind: layer.KindFile}}
		},
		"fill twice": func(b *layer.Binding) {
			b.Fill = []layer.File{{Path: "x", Kind: layer.KindFile}, {Path: "x", Kind: layer.KindFile}}
		},
		"fill no kind": func(b *layer.Binding) { b.Fill = []layer.File{{Path: "x"}} },
	} {
		b := good
		b.Dir += strings.ReplaceAll(name, " ", "-")
		change(&b)
		err := s.k.Bind(s.Context(), b)
		if err == nil {
			s.Errorf("%s: bound", name)
		}
		if gone := name == "another's number"; errors.Is(err, layer.ErrGone) != gone {
			s.Errorf("%s: %v", name, err)
		}
		if after := count(); after != before {
			s.Fatalf("%s: %s mounts, before %s", name, after, before)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		s.Errorf("outside: %v, %v", entries, err)
	}
	for _, dir := range []string{outside, s.root, s.root + "/link", "relative", s.root + "/../x"} {
		if err := s.k.Remove(s.Context(), dir); err == nil {
			s.Errorf("%s: removed", dir)
		}
		if err := s.k.Own(s.Context(), dir, s.box.UID); err == nil {
			s.Errorf("%s: given away", dir)
		}
		if _, err := s.k.Changes(s.Context(), dir, 10); err == nil {
			s.Errorf("%s: listed", dir)
		}
		if f, err := s.k.Open(s.Context(), dir, "x"); err == nil {
			f.Close()
			s.Errorf("%s: opened", dir)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		s.Error(err)
	}
	if err := s.k.Remove(s.Context(), filepath.Join(s.root, "never was")); err != nil {
		s.Errorf("what is not there: %v", err)
	}
	if _, err := s.k.Changes(s.Context(), filepath.Join(s.root, "never was"), 10); !errors.Is(err, layer.ErrGone) {
		s.Errorf("what is not there: %v", err)
	}
}

// startOf returns the start time of a process.
func startOf(s *suite, pid int) uint64 {
	s.Helper()
	start, err := proc.Start(pid)
	if err != nil {
		s.Fatal(err)
	}
	return start
}

// testNobody tests that nothing is written without a bound tree, and that some files are refused with one.
func testNobody(s *suite) {
	b := s.place()
	bound := b.binding([]string{s.base(b.UID, "dir/file", "file")})
	one := []layer.File{{Path: "x", Kind: layer.KindFile}}
	if err := s.k.Put(s.Context(), bound, one); !errors.Is(err, layer.ErrGone) {
		s.Errorf("before: %v", err)
	}
	s.bind(b, bound.Lowers)
	elsewhere := bound
	elsewhere.Target = "/tmp"
	if err := s.k.Put(s.Context(), elsewhere, one); !errors.Is(err, layer.ErrGone) {
		s.Errorf("elsewhere: %v", err)
	}
	s.sh(b, "cd "+b.Target+"; mkdir folder; ln -s /tmp link; ln -s dir near; mkfifo pipe")
	for _, f := range []layer.File{
		{Path: "link/x", Kind: layer.KindFile}, {Path: "near/x", Kind: layer.KindFile},
		{Path: "folder", Kind: layer.KindFile}, {Path: "file/x", Kind: layer.KindFile},
		{Path: "pipe/x", Kind: layer.KindFile}, {Path: "x", Kind: layer.KindWhiteout}, {Path: "x", Kind: layer.KindOther},
		{Path: "/x", Kind: layer.KindFile}, {Path: "a//x", Kind: layer.KindFile},
		{Path: "a/../x", Kind: layer.KindFile}, {Path: "", Kind: layer.KindFile},
		{Path: ".", Kind: layer.KindFolder}, {Path: "a\x00b", Kind: layer.KindFile},
		{Path: strings.Repeat("x", 256), Kind: layer.KindFile},
		{Path: "x", Kind: layer.KindFile, Source: "/nowhere/at/all"},
		{Path: "x", Kind: layer.KindLink, Data: []byte(strings.Repeat("x", 5000))},
	} {
		if err := s.k.Put(s.Context(), bound, []layer.File{f}); err == nil {
			s.Errorf("%q %c: written", f.Path, f.Kind)
		}
	}
	// Existing entries of any kind are replaced, without waiting for another process.
	if err := s.k.Put(s.Context(), bound, []layer.File{{Path: "pipe", Kind: layer.KindFile, Data: []byte("p")},
		{Path: "link", Kind: layer.KindFile, Data: []byte("l")}}); err != nil {
		s.Error(err)
	}
	if got := s.sh(b, "cd "+b.Target+"; ls -A . dir; cat pipe link"); got != ".:\ndir\nfile\nfolder\nlink\nnear\npipe\n\ndir:\nfile\npl" {
		s.Errorf("got %q", got)
	}
}

// testSource tests that files of any size are copied from the host.
func testSource(s *suite) {
	b := s.place()
	large := make([]byte, 1<<20+17)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	source := filepath.Join(s.root, "source")
	if err := os.WriteFile(source, large, 0o600); err != nil {
		s.Fatal(err)
	}
	defer os.Remove(source)
	files := []layer.File{
		{Path: "a/large", Kind: layer.KindFile, Source: source}, {Path: "a/small", Kind: layer.KindFile, Data: []byte("s")},
		{Path: "a/empty", Kind: layer.KindFile}, {Path: "a/data", Kind: layer.KindFile, Data: large},
	}
	bound := s.bind(b, []string{s.base(b.UID)}, files...)
	// Fill again. An existing upper is not filled again, and the content sent for it is dropped.
	if got, err := s.read(bound, "a/large"); err != nil || got != string(large) {
		s.Errorf("filled: %d bytes, %v", len(got), err)
	}
	for i := range files {
		files[i].Path = "b" + files[i].Path[1:]
	}
	if err := s.k.Put(s.Context(), bound, files); err != nil {
		s.Fatal(err)
	}
	if got := s.sh(b, "cd "+b.Target+
		"; cmp a/large b/large && cmp a/data b/data && cmp a/data a/large && cat a/small b/small && stat -c %u:%a b/large"); got != "ss1000:644\n" {
		s.Errorf("got %q", got)
	}
	// An error in the middle of a long request leaves no incomplete file.
	bad := []layer.File{{Path: "c/bad", Kind: layer.KindOther}, {Path: "c/large", Kind: layer.KindFile, Data: large}}
	if err := s.k.Put(s.Context(), bound, bad); err == nil {
		s.Error("written")
	}
	if got := s.sh(b, "ls -A "+b.Target+"/c"); got != "" {
		s.Errorf("got %q", got)
	}
}

// testFill tests that a filled layer covers another one, with its files and its whiteouts.
func testFill(s *suite) {
	below := s.base(s.box.UID, "gone/a", "stays/a", "stays/b", "file", "both")
	dir := filepath.Join(s.root, "filled", "upper")
	defer func() {
		if err := s.k.Remove(s.Context(), filepath.Dir(dir)); err != nil {
			s.Error(err)
		}
	}()
	fill := func(files ...layer.File) error { return s.k.Fill(s.Context(), dir, s.box.UID, files) }
	err := fill(layer.File{Path: "both", Kind: layer.KindFile, Data: []byte("filled"), Exec: true},
		layer.File{Path: "new/x", Kind: layer.KindLink, Data: []byte("to")},
		layer.File{Path: "gone", Kind: layer.KindWhiteout}, layer.File{Path: "stays/a", Kind: layer.KindWhiteout},
		layer.File{Path: "file/in", Kind: layer.KindFile})
	if err == nil {
		err = fill(layer.File{Path: "later", Kind: layer.KindFile, Data: []byte("too")})
	}
	if err != nil {
		s.Fatal(err)
	}
	if err := fill(layer.File{Path: "later", Kind: layer.KindFile, Data: []byte("again")}); err == nil {
		s.Error("a file of a layer was written twice")
	}
	if err := s.k.Fill(s.Context(), filepath.Dir(s.root), s.box.UID, nil); err == nil {
		s.Error("filled outside")
	}
	b := s.place()
	bound := s.bind(b, []string{dir, below}, layer.File{Path: "new/y", Kind: layer.KindFile})
	look := "cd " + b.Target +
		"; find . -printf '%P %y %U:%m %l|'; cat both later; rm new/x && mv stays moved && echo >moved/a && ls moved"
	got := s.sh(b, look)
	lines := strings.Split(strings.TrimSuffix(got[:strings.LastIndex(got, "|")], "|"), "|")
	slices.Sort(lines)
	s.want(lines, " d 1000:755 ", "both f 1000:755 ", "file d 1000:755 ", "file/in f 1000:644 ", "later f 1000:644 ",
		"new d 1000:755 ", "new/x l 1000:777 to",
		"new/y f 1000:644 ", "stays d 1000:755 ", "stays/b f 1000:644 ")
	if rest := got[strings.LastIndex(got, "|")+1:]; rest != "filledtooa\nb\n" {
		s.Errorf("got %q", rest)
	}
	s.want(s.changes(bound), "d moved was stays", "f moved/a 1", "d new", "w new/x", "f new/y 0", "w stays")
}

// testOwn tests that a tree is given away as a whole, without the targets of its links.
func testOwn(s *suite) {
	dir, err := os.MkdirTemp(s.root, "own")
	if err != nil {
		s.Fatal(err)
	}
	defer s.k.Remove(context.Background(), dir)
	outside := filepath.Join(dir, "outside")
	tree := filepath.Join(dir, "tree")
	if err := errors.Join(os.MkdirAll(filepath.Join(tree, "a", "b"), 0o700), os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(tree, "link")),
		os.Symlink(dir, filepath.Join(tree, "a", "up")), os.WriteFile(filepath.Join(tree, "a", "b", "file"), nil,
			0o600), unix.Mkfifo(filepath.Join(tree, "pipe"), 0o600)); err != nil {
		s.Fatal(err)
	}
	if err := s.k.Own(s.Context(), tree, 4321); err != nil {
		s.Fatal(err)
	}
	for path, want := range map[string]uint32{"outside": uint32(os.Geteuid()), ".": uint32(os.Geteuid()), "tree": 4321,
		"tree/link": 4321, "tree/a/up": 4321, "tree/a/b/file": 4321, "tree/pipe": 4321} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, path), &st); err != nil || st.Uid != want {
			s.Errorf("%s: user %d, %v", path, st.Uid, err)
		}
	}
}

// testDeep tests that a tree deeper than the longest path can be listed, opened, written and deleted, and that one
// deeper still is refused in bounded time.
func testDeep(s *suite) {
	b := s.place()
	bound := s.bind(b, []string{s.base(b.UID)})
	name := strings.Repeat("d", 100)
	third := strings.Repeat(name+"/", 20)
	s.sh(b, fmt.Sprintf(`set -e; cd %s; for i in 1 2 3; do mkdir -p %s; cd -P %s; done; echo bottom >file`, b.Target,
		third, third))
	list, err := s.k.Changes(s.Context(), bound.Upper(), 100)
	if err != nil || len(list) != 61 {
		s.Fatalf("%d entries, %v", len(list), err)
	}
	bottom := list[60].Path
	if got, err := s.read(bound, bottom); err != nil || got != "bottom\n" {
		s.Errorf("%q, %v", got, err)
	}
	if err := s.k.Put(s.Context(), bound, []layer.File{{Path: bottom + ".put", Kind: layer.KindFile, Data: []byte("put")}}); err != nil {
		s.Error(err)
	}
	if got, err := s.read(bound, bottom+".put"); err != nil || got != "put" {
		s.Errorf("%q, %v", got, err)
	}
	s.sh(b, "mkdir -p "+b.Target+strings.Repeat("/x", 1100))
	if _, err := s.k.Changes(s.Context(), bound.Upper(), 100_000); !errors.Is(err, layer.ErrTooMany) {
		s.Errorf("1100 folders deep: %v", err)
	}
	closed := "chmod 0 " + b.Target + "/" + name
	s.sh(b, closed)
	// The container still exists. Its bound tree stays its own.
	if err := s.k.Remove(s.Context(), bound.Dir); err != nil {
		s.Error(err)
	}
	if _, err := os.Lstat(bound.Dir); !errors.Is(err, fs.ErrNotExist) {
		s.Error(err)
	}
}

// testMoving tests that nothing outside the tree is read or written while a command swaps files, folders and links as
// fast as it can, and that every call returns.
func testMoving(s *suite) {
	b := s.place()
	secret := filepath.Join(s.root, "secret")
	if err := os.Mkdir(secret, 0o755); err != nil {
		s.Fatal(err)
	}
	defer os.RemoveAll(secret)
	if err := os.WriteFile(filepath.Join(secret, "file"), []byte("secret"), 0o644); err != nil {
		s.Fatal(err)
	}
	bound := s.bind(b, []string{s.base(b.UID, "dir/file")})
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() {
		// On the host these links lead to files that must not change.
		_, err := b.Sh(ctx, fmt.Sprintf(`cd %s; mkdir -p .swap; ln -s %s .swap/link; ln -s %s/file .swap/flink; mkfifo .swap/pipe; mkdir .swap/d; echo inside >.swap/d/file; echo inside >.swap/f
			touch ../started
			while [ ! -e ../stop ]; do
				mv .swap/d a; mv a .swap/d; mv .swap/link a; mv a .swap/link; mv .swap/pipe a; mv a .swap/pipe
				mv .swap/d a; mv .swap/flink a/flink; mv a/file a/was; mv a/flink a/file; mv a/file .swap/flink; mv a/was a/file; mv a .swap/d
				rm -rf put; ln -s %s put; rm -f put; mkdir put
			done; rm ../stop ../started`, b.Target, secret, secret, secret))
		ended <- err
	}()
	waitFor(s, func() bool { return s.sh(b, "test -e "+b.Target+"/../started && echo yes || true") == "yes\n" })
	rounds := 40
	if os.Getenv("RAMUS_TEST") == "full" {
		rounds = 3000
	}
	for i := range rounds {
		list, err := s.k.Changes(s.Context(), bound.Upper(), 1000)
		if err != nil && !strings.Contains(err.Error(), "all the time") {
			s.Fatal(err)
		}
		for _, c := range list {
			if strings.Contains(c.Path, "secret/") {
				s.Errorf("listed: %+v", c)
			}
		}
		for _, path := range []string{"a/file", "a", ".swap/d/file"} {
			if text, err := s.read(bound, path); err == nil && strings.Contains(text, "secret") {
				s.Fatalf("%s: read %q from outside", path, text)
			}
		}
		// Put may fail because its path disappears. It must not write elsewhere.
		_ = s.k.Put(s.Context(), bound, []layer.File{{Path: "put/x/y", Kind: layer.KindFile, Data: []byte("put")},
			{Path: "a/file", Kind: layer.KindFile, Data: []byte("put")}})
		if i%20 == 0 {
			if entries, err := os.ReadDir(secret); err != nil || len(entries) != 1 {
				s.Fatalf("outside: %v, %v", entries, err)
			}
		}
	}
	s.sh(b, "touch "+b.Target+"/../stop")
	if err := <-ended; err != nil {
		s.Error(err)
	}
	cancel()
	entries, err := os.ReadDir(secret)
	if text, rerr := os.ReadFile(filepath.Join(secret, "file")); err != nil || rerr != nil || len(entries) != 1 ||
		string(text) != "secret" {
		s.Errorf("outside: %v, %q, %v, %v", entries, text, err, rerr)
	}
}

// waitFor returns when f returns true.
func waitFor(s *suite, f func() bool) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); {
		if time.Now().After(deadline) {
			s.Fatal("it takes too long")
		}
	}
}

func testCancelled(s *suite) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	b := s.place()
	bound := b.binding([]string{s.base(b.UID)})
	for name, err := range map[string]error{"Bind": s.k.Bind(ctx, bound), "Put": s.k.Put(ctx, bound, nil),
		"Remove": s.k.Remove(ctx, bound.Lowers[0]), "Own": s.k.Own(ctx, bound.Lowers[0], 1)} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.k.Changes(ctx, bound.Lowers[0], 10); !errors.Is(err, context.Canceled) {
		s.Errorf("Changes: %v", err)
	}
	if _, err := s.k.Open(ctx, bound.Lowers[0], "x"); !errors.Is(err, context.Canceled) {
		s.Errorf("Open: %v", err)
	}
}

// testAgain tests that an upper outlives its container. It can be read, and bound in another container, with any marks
// that the kernel has left in it.
func testAgain(s *suite) {
	b := s.start(s.T)
	bound := b.binding([]string{s.base(b.UID, "base")}, layer.File{Path: "filled", Kind: layer.KindFile, Data: []byte("1")})
	// The folder is not below the first container's folder, which goes with the container.
	bound.Dir = filepath.Join(s.root, "again")
	defer s.k.Remove(context.Background(), bound.Dir)
	if err := s.k.Bind(s.Context(), bound); err != nil {
		s.Fatal(err)
	}
	s.sh(b, "cd "+b.Target+"; echo made >made; rm base")
	b.Kill()
	s.want(s.changes(bound), "w base", "f filled 1", "f made 5")
	for name, err := range map[string]error{"Put": s.k.Put(s.Context(), bound,
		[]layer.File{{Path: "x", Kind: layer.KindFile}}), "Bind": s.k.Bind(s.Context(), bound)} {
		if !errors.Is(err, layer.ErrGone) {
			s.Errorf("%s after the end: %v", name, err)
		}
	}
	again := s.place()
	other := bound
	other.PID, other.Start, other.Target = again.PID, again.Start, again.Target
	other.Fill = []layer.File{{Path: "filled", Kind: layer.KindFile, Data: []byte("2")}}
	if err := s.k.Bind(s.Context(), other); err != nil {
		s.Fatal(err)
	}
	if got := s.sh(again, "cd "+again.Target+"; cat made filled; ls -A"); got != "made\n1filled\nmade\n" {
		s.Errorf("got %q", got)
	}
}
