package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "here")
	secret := &secrets{environ: []string{"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG"}}
	for _, x := range []struct{ url, wrong string }{
		{"", ""},
		{"file://" + dir, ""},
		{"s3://evidence?region=eu-central-1&endpoint=http://127.0.0.1:1&use_path_style=true&request_checksum_calculation=when_required&prefix=ramus/", ""},
		{"s3://evidence?region=eu-central-1&colour=red", "colour"},
		{"mem://", "want file:///FOLDER"},
		{"/srv/artifacts", "want file:///FOLDER"},
		{"://", "artifacts.url"},
	} {
		b, err := openStore(x.url, secret)
		if (err == nil) != (x.wrong == "") || err != nil && !strings.Contains(err.Error(), x.wrong) {
			t.Errorf("%s: %v, want %q", x.url, err, x.wrong)
		}
		if b == nil {
			continue
		}
		if strings.HasPrefix(x.url, "file:") {
			if err := b.Put(t.Context(), "sha256/ab/abc", strings.NewReader("x")); err != nil {
				t.Error(err)
			}
			names, err := filepath.Glob(filepath.Join(dir, "sha256", "ab", "*"))
			if err != nil || len(names) != 1 || filepath.Base(names[0]) != "abc" {
				t.Errorf("%v, %v: want the file alone", names, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if secret.values["artifacts.aws_secret_access_key"] == "" {
		t.Error("the store's key is not known as a secret")
	}
}

func TestLinkKey(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	path := filepath.Join(keys, "links.key")
	secret := &secrets{}
	first, err := newLinks(keys, Defaults(), secret)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != linkKeyBytes {
		t.Errorf("%v, %v", info, err)
	}
	again, err := newLinks(keys, Defaults(), secret)
	if err != nil || string(again.Key) != string(first.Key) || secret.values["links.key"] != string(first.Key) {
		t.Errorf("another key at the second start, or one that is not kept secret: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(keys, ".key-*")); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newLinks(keys, Defaults(), secret); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a broken key: %v", err)
	}
}
