package gitd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// source is the origin of an import, which is a path or an http, https or ssh URL.
type source struct {
	location string   // the argument of git, which is also recorded, without credentials
	local    bool     // location is a path on this machine
	site     string   // "https://HOST/", for http and https
	config   []string // for the children that talk to it
	env      []string
	hidden   map[string]string // credentials, by the names that replace them
}

// parseSource parses a source that a person gave. Git supports more transports, some of which run programs.
func parseSource(text string) (source, error) {
	bad := func(why string) (source, error) {
		return source{}, fmt.Errorf("source %.200q %s; allowed are a path, file://, http://, https:// and ssh:// URLs, and user@host:path: %w",
			withoutPassword(text), why, ErrInvalid)
	}
	switch {
	case text == "":
		return bad("is empty")
	case strings.HasPrefix(text, "-"):
		return bad("begins with '-'")
	case strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return bad("contains a control character")
	case strings.Contains(text, "::"):
		// "NAME::ADDRESS" makes git run the program git-remote-NAME.
		if _, err := os.Stat(text); err != nil {
			return bad("names a transport that is not allowed")
		}
		text = "./" + text
	}

	s := source{location: text}
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case isURL && strings.EqualFold(scheme, "file"):
		path, err := url.PathUnescape(rest)
		if err != nil || !strings.HasPrefix(path, "/") {
			return bad("is not file:///PATH")
		}
		return localSource(path)
	case isURL:
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return bad("is not a URL")
		}
		switch strings.ToLower(u.Scheme) {
		case "http", "https":
			s.site = u.Scheme + "://" + u.Host + "/"
			if u.User != nil {
				s.addPassword(u.User)
				u.User = nil
			}
			s.location = u.String()
			s.env = serverEnv("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
				"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO")
			s.config = append(s.config, "protocol.http.allow=always", "protocol.https.allow=always",
				"http.lowSpeedLimit=1", "http.lowSpeedTime=60") // gives up on a server that sends nothing more
		case "ssh":
			if strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.Path, "/-") || strings.HasPrefix(u.User.Username(), "-") {
				return bad("has a part that begins with '-'")
			}
			if _, ok := u.User.Password(); ok {
				return bad("has a password, which ssh does not take from a URL")
			}
			s.useSSH()
		default:
			return bad("names a transport that is not allowed")
		}
		return s, nil
	}

	// As for git, host:path means ssh unless a slash comes first or the path exists.
	colon := strings.IndexByte(text, ':')
	slash := strings.IndexByte(text, '/')
	if colon > 0 && (slash < 0 || colon < slash) {
		if _, err := os.Stat(text); err != nil {
			host, path := text[:colon], text[colon+1:]
			if strings.HasPrefix(path, "-") || strings.Contains(host, "@-") {
				return bad("has a part that begins with '-'")
			}
			s.useSSH()
			return s, nil
		}
	}
	return localSource(text)
}

func localSource(path string) (source, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return source{}, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return source{}, fmt.Errorf("source %.200q: %w", path, ErrNotFound)
	} else if err != nil {
		return source{}, err
	}
	return source{location: path, local: true, config: []string{"protocol.file.allow=always"}}, nil
}

const sshCommand = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15"

func (s *source) useSSH() {
	// Nobody can answer a question for a password or a host key.
	s.env = append(serverEnv("SSH_AUTH_SOCK"), "GIT_SSH_COMMAND="+sshCommand, "GIT_SSH_VARIANT=ssh")
	s.config = append(s.config, "protocol.ssh.allow=always")
}

// serverEnv returns variables of the server's own environment.
func serverEnv(keys ...string) []string {
	var env []string
	for _, k := range keys {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// withoutPassword removes the credentials of a URL for logs and lists.
func withoutPassword(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	authority, path, hasPath := strings.Cut(rest, "/")
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return text
	}
	if user := authority[:at]; strings.EqualFold(scheme, "ssh") && !strings.Contains(user, ":") {
		return text // a user name is not secret
	}
	text = scheme + "://" + authority[at+1:]
	if hasPath {
		text += "/" + path
	}
	return text
}
