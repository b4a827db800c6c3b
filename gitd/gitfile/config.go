package gitfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/config"
	"github.com/ramus-dev/ramus/gitd/object"
)

// configMax bounds the bytes of the config file of a repository. Longer ones are refused.
const configMax = 1 << 20

// Config is a repository's own config file, with keys in lower case and the last value of each. The server
// reads it for decisions that come before git. Git itself reads the whole file again, with included files.
type Config map[string]string

// ReadConfig reads the config file of the repository dir. Returns nil if there is none, and [object.ErrTooLarge] if it has
// more than 1 MiB.
func ReadConfig(dir string) (Config, error) {
	f, err := os.Open(filepath.Join(dir, "config"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if st.Size() > configMax {
		return nil, fmt.Errorf("config has more than %d bytes: %w", configMax, object.ErrTooLarge)
	}
	cfg := config.New()
	if err := config.NewDecoder(f).Decode(cfg); err != nil {
		return nil, err
	}
	own := Config{}
	for _, sec := range cfg.Sections {
		for _, o := range sec.Options {
			own[strings.ToLower(sec.Name+"."+o.Key)] = o.Value
		}
		for _, sub := range sec.Subsections {
			for _, o := range sub.Options {
				own[strings.ToLower(sec.Name)+"."+sub.Name+"."+strings.ToLower(o.Key)] = o.Value
			}
		}
	}
	return own, nil
}

// Names reports whether the file has a value for key.
func (o Config) Names(key string) bool {
	_, ok := o[key]
	return ok
}

// Flag returns a boolean as git reads it. A value that git would refuse counts as false.
func (o Config) Flag(key string, missing bool) bool {
	v, ok := o[key]
	if !ok {
		return missing
	}
	switch strings.ToLower(v) {
	case "true", "yes", "on", "1", "":
		// A key without "=" is true for git, an empty value is false. go-git cannot distinguish them, so only a
		// written word counts as true.
		return v != ""
	}
	return false
}

// AtMost returns a size as git reads it, with its units k, m and g. Returns most if the size is larger, or if the
// file has none.
func (o Config) AtMost(key string, most int64) int64 {
	text := strings.ToLower(o[key])
	unit := int64(1)
	if digits := strings.TrimRight(text, "kmg"); len(text)-len(digits) == 1 {
		unit = map[byte]int64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}[text[len(text)-1]]
		text = digits
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n > most/unit {
		return most
	}
	return n * unit
}

// NeedsGit reports whether the file has a key that changes the answers of upload-pack or receive-pack.
func (o Config) NeedsGit() bool {
	for key, value := range o {
		section, _, _ := strings.Cut(key, ".")
		switch section {
		case "uploadpack", "uploadpackfilter", "receive", "repack", "transfer", "lsrefs", "protocol", "include",
			"includeif", "extensions":
			if key != "extensions.objectformat" || value != "sha1" {
				return true
			}
		}
	}
	return false
}
