package cgroup

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const someMountinfo = `24 1 254:1 / / rw,relatime - ext4 /dev/vda rw
30 24 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
31 24 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:3 - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /mnt/a\040b/unified rw - cgroup2 cgroup2 rw,nsdelegate
a line of something else
33 24 0:29 / /short - cgroup
`

func TestMounts(t *testing.T) {
	mounts := parseMounts(strings.NewReader(someMountinfo))
	if len(mounts) != 3 {
		t.Fatalf("%+v", mounts)
	}
	for i, want := range []mount{
		{point: "/sys/fs/cgroup/memory", root: "/"},
		{point: "/sys/fs/cgroup/cpu,cpuacct", root: "/docker/abc"},
		{point: "/mnt/a b/unified", root: "/", v2: true},
	} {
		got := mounts[i]
		if got.point != want.point || got.root != want.root || got.v2 != want.v2 {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	if !slices.Contains(mounts[1].options, "cpu") {
		t.Errorf("controllers: %v", mounts[1].options)
	}
	for _, test := range []struct {
		mount int
		path  string
		want  string
	}{
		{0, "/", "/sys/fs/cgroup/memory"},
		{0, "/user/x", "/sys/fs/cgroup/memory/user/x"},
		{1, "/docker/abc/y", "/sys/fs/cgroup/cpu,cpuacct/y"},
		{1, "/docker/abc", "/sys/fs/cgroup/cpu,cpuacct"},
		// Seen from inside a cgroup namespace, or outside of what is mounted.
		{1, "/", "/sys/fs/cgroup/cpu,cpuacct"},
		{1, "/docker/abcdef", "/sys/fs/cgroup/cpu,cpuacct"},
	} {
		if got := mounts[test.mount].folder(test.path); got != test.want {
			t.Errorf("%s of mount %d is %s, not %s", test.path, test.mount, got, test.want)
		}
	}
}

func TestPaths(t *testing.T) {
	got := parsePaths(strings.NewReader("4:memory:/a:b\n3:cpu,cpuacct:/c\n1:name=systemd:/d\n0::/e\nnonsense\n"))
	want := map[string]string{"memory": "/a:b", "cpu": "/c", "cpuacct": "/c", "name=systemd": "/d", "": "/e"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func FuzzMounts(f *testing.F) {
	f.Add(someMountinfo, "/docker/abc")
	f.Add(`1 2 3:4 \057.. \777\12 rw - cgroup2 x y`, "..")
	f.Fuzz(func(t *testing.T, text, path string) {
		for _, m := range parseMounts(strings.NewReader(text)) {
			if filepath.IsAbs(m.point) && filepath.IsAbs(path) {
				if got := m.folder(path); !within(got, filepath.Clean(m.point)) {
					t.Errorf("%q of %+v is outside: %q", path, m, got)
				}
			}
		}
		parsePaths(strings.NewReader(text))
	})
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
