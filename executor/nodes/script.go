package nodes

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// Bring enters a machine that a person has, and returns the script that makes it a node. The script runs as root on
// Debian, has a token that is good once and for five minutes, and does as cloud-init does at a cloud. address is for
// people. The machine gets a firewall only if Ranges has addresses, so that it locks nobody out.
func (n *Nodes) Bring(ctx context.Context, address, by string) (Node, string, error) {
	wrap := func(err error) (Node, string, error) {
		return Node{}, "", fmt.Errorf("cannot bring a machine: %w", err)
	}
	if n == nil || n.URL == "" {
		return wrap(fmt.Errorf("machines need the `url` of this server"))
	}
	address = tail(address, 200)
	token := newToken()
	id, err := n.enterNode(Node{Source: SourceSSH, Address: address, By: by}, "for "+address, token)
	if err != nil {
		return wrap(err)
	}
	d := n.description(id, token)
	d.Firewall = len(d.Ranges) > 0
	script, err := describeScript(d)
	if err != nil {
		_, err = n.fail(ctx, id, err)
		return wrap(err)
	}
	node, err := n.move(id, StateCreating, "creating", "", StatePending)
	return node, script, err
}

// describeScript returns a description as a script for a shell.
func describeScript(d Description) (string, error) {
	text, err := Describe(d)
	if err != nil {
		return "", err
	}
	var c struct {
		Packages []string
		Files    []struct{ Path, Permissions, Content string } `yaml:"write_files"`
		Commands [][]string                                    `yaml:"runcmd"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return "", fmt.Errorf("cannot describe a machine: %w", err)
	}
	var b strings.Builder
	b.WriteString(`#!/bin/sh
set -eu
[ "$(id -u)" = 0 ] || { echo 'ramus: this script needs root' >&2; exit 1; }
command -v apt-get >/dev/null && command -v systemctl >/dev/null || { echo 'ramus: this script needs Debian with systemd' >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
`)
	fmt.Fprintf(&b, "apt-get -qqy install %s >/dev/null\n", strings.Join(c.Packages, " "))
	for _, f := range c.Files { // their paths and modes are the template's, and need no quotes
		fmt.Fprintf(&b, "mkdir -p $(dirname %s)\n(umask 077; base64 -d >%s.new <<E\n%s\nE\n)\nchmod %s %s.new\nmv %s.new %s\n",
			f.Path, f.Path, base64.StdEncoding.EncodeToString([]byte(f.Content)), f.Permissions, f.Path, f.Path, f.Path)
	}
	for _, words := range c.Commands {
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	return b.String(), nil
}
