package main

import (
	"errors"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// forkFlag reads the start of a fork: "happy-mallard", "conv:ID@COMMIT".
type forkFlag struct{ fork **record.Fork }

// String implements flag.Value.
func (f *forkFlag) String() string {
	if f.fork == nil || *f.fork == nil {
		return ""
	}
	if (*f.fork).Commit == "" {
		return (*f.fork).Of
	}
	return (*f.fork).Of + "@" + string((*f.fork).Commit)
}

// Set implements flag.Value.
func (f *forkFlag) Set(text string) error {
	of, commit, at := strings.Cut(text, "@")
	if of == "" || at && commit == "" {
		return errors.New("want CALLER, CALLER@COMMIT, CALLER@STEP or RUN@STEP")
	}
	*f.fork = &record.Fork{Of: of, Commit: gitd.Hash(commit)}
	return nil
}
