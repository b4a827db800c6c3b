package main

import (
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

// handedFlag collects the secrets of a request, whose values are in the environment of this command.
type handedFlag struct {
	list *[]record.HandedSecret
	e    *env
}

// setHanded declares the flag for secrets that one run gets.
func setHanded(fs *flag.FlagSet, e *env, list *[]record.HandedSecret) {
	fs.Var(&handedFlag{list, e}, "secret",
		"`NAME=HOST[,HOST]…`: the door sends the value of the variable NAME of this command's environment "+
			"to these hosts for the placeholder secret:NAME, while this run works; no container and no record gets it; may be repeated")
}

func (h *handedFlag) String() string { return "" }

// Set adds a secret.
func (h *handedFlag) Set(s string) error {
	name, hosts, ok := strings.Cut(s, "=")
	if !ok || name == "" || hosts == "" {
		return fmt.Errorf("want NAME=HOST")
	}
	value := h.e.getenv(name)
	if value == "" {
		return fmt.Errorf("the environment has no variable %s", name)
	}
	*h.list = append(*h.list, record.HandedSecret{Name: name, Value: value, Hosts: strings.Split(hosts, ",")})
	return nil
}
