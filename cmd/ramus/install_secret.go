package main

import (
	"fmt"
	"os"
	"strings"
)

// largestSecret bounds a file that holds one; a private key is some kilobytes.
const largestSecret = 64 << 10

// secrets reads the secrets that a configuration names and remembers their
// values, by the key that named them: what the server holds is removed from
// all that it writes. It is used while the rooms are opened, by one goroutine.
type secrets struct {
	environ []string
	values  map[string]string
}

// value reads a secret from the environment variable or the file that the keys
// PATH_env and PATH_file name. Both empty: there is none, and value is "".
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
		info, err := os.Stat(name)
		if err != nil {
			return "", fmt.Errorf("cannot read %s_file: %w", path, err)
		}
		if info.Size() > largestSecret {
			return "", fmt.Errorf("cannot read %s_file: %s is larger than %d bytes", path, name, largestSecret)
		}
		b, err := os.ReadFile(name)
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

// env is a variable of the environment; "" when it is not set.
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
