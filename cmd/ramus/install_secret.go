package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/ramus-dev/ramus/internal/redact"
)

// largestSecret bounds a file with a secret, in bytes. A private key has some kilobytes.
const largestSecret = 64 << 10

// secrets reads the secrets of a configuration and remembers their values by key. All output of the server is redacted
// by them. One goroutine uses it, while the rooms are opened.
type secrets struct {
	environ []string
	values  map[string]string
}

// readSecret reads a file that is a secret.
func readSecret(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > largestSecret {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, largestSecret)
	}
	return os.ReadFile(name)
}

// value returns a secret from the environment variable or the file that the keys PATH_env and PATH_file name. Returns
// "" if both are empty.
func (s *secrets) value(path, env, file string) (string, error) {
	var value string
	switch {
	case env != "" && file != "":
		return "", fmt.Errorf("%s_env and %s_file are both set: want one", path, path)
	case env != "":
		if value = s.env(env); value == "" {
			return "", fmt.Errorf("%s_env names %s, which is not in the environment", path, env)
		}
	case file != "":
		name, err := folder(file)
		if err != nil {
			return "", err
		}
		b, err := readSecret(name)
		if err != nil {
			return "", fmt.Errorf("cannot read %s_file: %w", path, err)
		}
		if value = strings.TrimSpace(string(b)); value == "" {
			return "", fmt.Errorf("%s_file names %s, which is empty", path, name)
		}
	default:
		return "", nil
	}
	s.known(path, value)
	return value, nil
}

// env returns a variable of the environment. Returns "" if it is not set.
func (s *secrets) env(name string) (value string) {
	for _, kv := range s.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// known remembers a secret that was read in another way.
func (s *secrets) known(path, value string) {
	if value == "" {
		return
	}
	if s.values == nil {
		s.values = make(map[string]string)
	}
	s.values[path] = value
}

// all reads every secret of a configuration: the values of all keys NAME_env and NAME_file, the keys for SSH, and the
// variables of `secrets`. Opened parts read theirs again. all covers the parts that are not opened, and `ramus doctor`.
func (s *secrets) all(c Config) error {
	var errs []error
	for _, name := range c.Secrets {
		if s.env(name) == "" {
			errs = append(errs, fmt.Errorf("secrets names %s, which is not in the environment", name))
		}
		s.known(name, s.env(name))
	}
	errs = append(errs, s.named(reflect.ValueOf(c), ""))
	for name, repo := range c.Repos {
		if repo.SSHKey != "" {
			errs = append(errs, s.file("repos."+name+".ssh_key", repo.SSHKey))
		}
	}
	return errors.Join(errs...)
}

// named reads the values of NAME_env and NAME_file in a part of the configuration.
func (s *secrets) named(v reflect.Value, path string) error {
	var errs []error
	switch v.Kind() {
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			errs = append(errs, s.named(it.Value(), join(path, it.Key().String())))
		}
	case reflect.Struct:
		texts := make(map[string]string)
		for i, key := range keys(v.Type()) {
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				texts[key] = f.String()
			case reflect.Struct, reflect.Map:
				errs = append(errs, s.named(f, join(path, key)))
			}
		}
		for key := range texts {
			if name, ok := strings.CutSuffix(key, "_env"); ok {
				_, err := s.value(join(path, name), texts[key], texts[name+"_file"])
				errs = append(errs, err)
			} else if name, ok := strings.CutSuffix(key, "_file"); ok && texts[name+"_env"] == "" {
				_, err := s.value(join(path, name), "", texts[key])
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// file remembers the content of a file.
func (s *secrets) file(path, name string) error {
	name, err := folder(name)
	if err != nil {
		return err
	}
	b, err := readSecret(name)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	s.known(path, string(b))
	return nil
}

// keys remembers the keys that the server has made for itself.
func (s *secrets) keys(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read the folder of keys: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := s.file("keys/"+e.Name(), filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// set returns the secrets that are removed from the server's output. It warns about those that are too short for that.
func (s *secrets) set(log *slog.Logger) *redact.Secrets {
	set, short := redact.New(s.values)
	if len(short) > 0 {
		log.Warn(shortSecrets(short))
	}
	return set
}

func shortSecrets(names []string) string {
	return fmt.Sprintf("%s: shorter than %d characters and so not removed from logs, commits and messages; use a longer one",
		strings.Join(names, ", "), redact.MinLength)
}

// secretLog is a log without secrets, once they are known.
type secretLog struct {
	next    slog.Handler
	secrets *atomic.Pointer[redact.Secrets]
}

func (h secretLog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h secretLog) Handle(ctx context.Context, r slog.Record) error {
	return h.secrets.Load().Handler(h.next).Handle(ctx, r)
}

func (h secretLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.next = h.secrets.Load().Handler(h.next).WithAttrs(attrs)
	return h
}

func (h secretLog) WithGroup(name string) slog.Handler {
	h.next = h.secrets.Load().Handler(h.next).WithGroup(name)
	return h
}
