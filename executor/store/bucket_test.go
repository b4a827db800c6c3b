package store_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/store/storetest"
)

// openFolder returns a bucket in a new folder, and the folder.
func openFolder(t *testing.T) (*store.Folder, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made", "here")
	b, err := store.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b, dir
}

// unfinished returns the files of a folder that were not renamed.
func unfinished(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return names
}

func TestBucket(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		storetest.TestBucket(t, func(t *testing.T) storetest.Opened {
			b, dir := openFolder(t)
			return storetest.Opened{Bucket: b, Unfinished: func() []string { return unfinished(t, dir) }}
		})
	})
	suiteOfS3(t, func(t *testing.T) (store.S3, func() []string) {
		s := storetest.NewS3(t)
		return s.Config(), s.Unfinished
	})
}

// suiteOfS3 runs the suite on buckets that begin returns, with their uploads that have not ended.
func suiteOfS3(t *testing.T, begin func(t *testing.T) (store.S3, func() []string)) {
	for name, change := range map[string]func(*store.S3){
		"S3": func(*store.S3) {},
		// The settings without a default. The region is requested, and requests have no
		// checksums.
		"S3 otherwise": func(s *store.S3) { s.Prefix, s.NoChecksums, s.Region = "ramus/", true, "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_REGION", "")
			t.Setenv("AWS_DEFAULT_REGION", "")
			storetest.TestBucket(t, func(t *testing.T) storetest.Opened {
				config, unfinished := begin(t)
				change(&config)
				b, err := config.Open()
				if err != nil {
					t.Fatal(err)
				}
				return storetest.Opened{Bucket: b, Unfinished: unfinished}
			})
		})
	}
}
