package gitfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFlag reads words as stock git reads them.
func TestFlag(t *testing.T) {
	for _, word := range []string{"true", "TRUE", "yes", "on", "1", "false", "no", "off", "0"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "config"), "[http]\n\treceivepack = "+word+"\n")
		out, err := exec.Command("git", "config", "--file", filepath.Join(dir, "config"), "--type=bool", "http.receivepack").Output()
		if err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSpace(string(out)) == "true"; c.Flag("http.receivepack", !want) != want {
			t.Errorf("%s: not %v, as git has it", word, want)
		}
	}
	c := Config{"a.empty": "", "a.odd": "maybe"}
	if c.Flag("a.empty", true) || c.Flag("a.odd", true) || !c.Flag("a.missing", true) || c.Flag("a.missing", false) {
		t.Error("an empty, an odd or a missing value")
	}
	if !c.Names("a.empty") || c.Names("a.missing") {
		t.Error("the names of the file")
	}
}

// TestAtMost reads sizes as stock git reads them, up to a bound.
func TestAtMost(t *testing.T) {
	const most = 3 << 20
	for text, want := range map[string]int64{"7": 7, "7k": 7 << 10, "2M": 2 << 20, "3m": most, "4m": most, "1g": most,
		"": most, "0": most, "-1": most, "k": most, "7kk": most, "99999999999999999999": most, "9007199254740993k": most} {
		if got := (Config{"x.y": text}).AtMost("x.y", most); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		if number, _, _ := strings.Cut(strings.ToLower(text), "m"); number != "" && want < most {
			out, err := exec.Command("git", "-c", "x.y="+text, "config", "--type=int", "x.y").Output()
			if err != nil || strings.TrimSpace(string(out)) == "" {
				t.Errorf("%q: git refuses it", text)
			}
		}
	}
}

// TestReadConfig reads subsections, the last of several values, and refuses a file that is too large.
func TestReadConfig(t *testing.T) {
	dir := t.TempDir()
	if c, err := ReadConfig(dir); c != nil || err != nil {
		t.Errorf("no file: %v, %v", c, err)
	}
	write(t, filepath.Join(dir, "config"), "[Core]\n\tBare = true\n[remote \"Or.igin\"]\n\tURL = one\n\turl = two\n")
	c, err := ReadConfig(dir)
	if err != nil || c["core.bare"] != "true" || c["remote.Or.igin.url"] != "two" {
		t.Errorf("%v, %v", c, err)
	}
	write(t, filepath.Join(dir, "config"), "[core\n")
	if _, err := ReadConfig(dir); err == nil {
		t.Error("a damaged file is read")
	}
	write(t, filepath.Join(dir, "config"), strings.Repeat("#", configMax+1))
	if _, err := ReadConfig(dir); !errors.Is(err, object.ErrTooLarge) {
		t.Error(err)
	}
}

// TestNeedsGit names the keys that change the answers of upload-pack and receive-pack.
func TestNeedsGit(t *testing.T) {
	for key, value := range map[string]string{"uploadpack.hiderefs": "refs/x", "uploadpackfilter.allow": "false",
		"receive.denydeletes": "true", "repack.usedeltaislands": "true", "transfer.hiderefs": "refs/x", "lsrefs.unborn": "ignore",
		"protocol.version": "1", "include.path": "x", "includeif.gitdir:/.path": "x", "extensions.refstorage": "reftable",
		"extensions.objectformat": "sha256"} {
		if !(Config{"core.bare": "true", key: value}).NeedsGit() {
			t.Errorf("%s = %s: the server answers itself", key, value)
		}
	}
	if (Config{"core.bare": "true", "http.receivepack": "true", "extensions.objectformat": "sha1"}).NeedsGit() {
		t.Error("git is needed for a configuration that changes no answer")
	}
}

// TestSignature tells a changed file from the same file, and takes a file that was just written for neither.
func TestSignature(t *testing.T) {
	path := filepath.Join(t.TempDir(), "HEAD")
	missing, err := Stat(path)
	if err != nil || !missing.IsMissing() || !missing.Matches(missing) {
		t.Errorf("a missing file: %v, %v", missing, err)
	}
	if below, err := Stat(filepath.Join(path, "below")); err != nil || !below.IsMissing() {
		t.Errorf("below a missing file: %v, %v", below, err)
	}
	write(t, path, "one\n")
	young, err := Stat(path)
	if err != nil || young.Matches(young) || young.IsMissing() {
		t.Errorf("a file that was just written: %v, %v", young, err)
	}
	if below, err := Stat(filepath.Join(path, "below")); err != nil || !below.IsMissing() {
		t.Errorf("below a file: %v, %v", below, err)
	}

	// The time of the last change of a file's entry cannot be set, so the test waits for it to be old.
	var old Signature
	for old.young = true; old.young; time.Sleep(youngFor / 10) {
		if old, err = Stat(path); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Stat(path)
	if err != nil || !old.Matches(again) || old.String() != again.String() || !old.Matches(young) {
		t.Errorf("the same file: %v, %v, %v", old, again, err)
	}
	write(t, path, "two\n")
	changed, err := Stat(path)
	if err != nil || old.Matches(changed) || old.String() == changed.String() {
		t.Errorf("a changed file: %v, %v, %v", old, changed, err)
	}
}

// TestReadSmall reads 4 KiB and no more.
func TestReadSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "HEAD")
	write(t, path, strings.Repeat("x", smallMax))
	if b, err := ReadSmall(path); err != nil || len(b) != smallMax {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	write(t, path, strings.Repeat("x", smallMax+1))
	if _, err := ReadSmall(path); !errors.Is(err, object.ErrTooLarge) || !strings.Contains(err.Error(), "HEAD has more") {
		t.Error(err)
	}
	if _, err := ReadSmall(path + "s"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
