package gitd

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Upstream is where a repository is fetched from.
type Upstream struct {
	// URL is a path or URL that git can clone. A password in it is used, but
	// neither stored nor logged; Credential is the better place for one.
	URL string
	// Branch is upstream's branch that becomes the base; empty: the base's own
	// name, or at an import the branch that upstream's HEAD names.
	Branch string
	// Credential is asked before each conversation with upstream, so that it may
	// give one that lives for minutes; nil: there is none.
	Credential func(ctx context.Context) (Credential, error)
}

// Credential lets git in at an upstream. Which fields count depends on the URL:
// http and https take User and Password, ssh takes the files.
type Credential struct {
	User, Password string
	// KeyFile is a private key that ssh can read without a passphrase. Empty:
	// what ssh finds by itself.
	KeyFile string
	// KnownHosts names the host keys that are trusted; empty: ssh's own files.
	KnownHosts string
}

// source makes an upstream fit for git's children.
func (u Upstream) source(ctx context.Context) (source, error) {
	src, err := parseSource(u.URL)
	if err != nil || u.Credential == nil || src.local {
		return src, err
	}
	cred, err := u.Credential(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return src, context.Cause(ctx)
		}
		return src, fmt.Errorf("cannot get the credential for %s: %w: %w", src.where, err, ErrUpstream)
	}
	return src, src.admit(cred)
}

// admit hands a credential to the children that talk to s, by their environment
// alone: it stands in no URL, no argument and no file.
func (s *source) admit(c Credential) error {
	if s.site != "" {
		if c.Password != "" {
			s.basic(url.UserPassword(c.User, c.Password))
		}
		return nil
	}
	if c.KeyFile == "" && c.KnownHosts == "" {
		return nil
	}
	ssh := sshCommand
	for _, file := range []struct{ option, path string }{{"IdentityFile", c.KeyFile}, {"UserKnownHostsFile", c.KnownHosts}} {
		if file.path == "" {
			continue
		}
		// Read twice: by a shell, and by ssh, which knows quotes and %-signs.
		if !filepath.IsAbs(file.path) || strings.ContainsAny(file.path, "'\"\\%$\r\n") {
			return fmt.Errorf("cannot use the file %.200q for ssh: want an absolute path without quotes, '%%', '$' and '\\': %w", file.path, ErrInvalid)
		}
		ssh += ` -o '` + file.option + `="` + file.path + `"'`
	}
	if c.KeyFile != "" {
		ssh += " -o IdentitiesOnly=yes"
	}
	if c.KnownHosts != "" {
		ssh += " -o StrictHostKeyChecking=yes"
	}
	s.env = append(s.env, "GIT_SSH_COMMAND="+ssh)
	return nil
}

// basic sends a password to the source's own host only: a redirect must not
// carry it away.
func (s *source) basic(user *url.Userinfo) {
	password, _ := user.Password()
	code := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
	s.config = append(s.config, "http."+s.site+".extraHeader=Authorization: Basic "+code)
	if s.hidden == nil {
		s.hidden = map[string]string{}
	}
	s.hidden["upstream's password"], s.hidden["upstream's credential"] = password, code
}

// quiet takes what lets git in out of what git and the other side say.
func (s source) quiet() *redact.Secrets {
	secrets, _ := redact.New(s.hidden)
	return secrets
}

// listen is progress without credentials; done must be called at the end.
func (s source) listen(progress io.Writer) (lines *progressLines, done func()) {
	if progress == nil {
		progress = io.Discard
	}
	clean := s.quiet().Writer(progress)
	lines = newProgress(clean)
	return lines, func() {
		lines.flush()
		_ = clean.Flush() // who listens may have gone
	}
}

// quietError is an error of git without the credential that it may quote.
type quietError struct {
	text string
	err  error
}

func (e *quietError) Error() string { return e.text }
func (e *quietError) Unwrap() error { return e.err }

func (s source) quietly(err error) error {
	if err == nil {
		return nil
	}
	if text := s.quiet().String(err.Error()); text != err.Error() {
		return &quietError{text, err}
	}
	return err
}

// The keys of a repository's own configuration that say where it comes from.
const (
	keyUpstream  = "ramus.upstream"
	keyRefreshed = "ramus.refreshed"
)

// RefreshedAt is when the base was last found, or made, to be up to date with
// upstream; zero where that was never asked.
func (r *Repo) RefreshedAt(ctx context.Context) (time.Time, error) {
	own, err := readOwnConfig(r.dir)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read the configuration of %s: %w", r.name, err)
	}
	t, err := time.Parse(time.RFC3339, own[keyRefreshed])
	if err != nil {
		return time.Time{}, nil // not written by us; it is only shown
	}
	return t, nil
}

// remember writes down that the repository is as new as upstream.
func (r *Repo) remember(ctx context.Context, src source) error {
	for _, kv := range [][2]string{{keyUpstream, src.where}, {keyRefreshed, r.server.now().UTC().Format(time.RFC3339)}} {
		if err := r.server.git.Run(ctx, gitcmd.Command{Repo: r.dir, Args: []string{"config", "--local", kv[0], kv[1]}}); err != nil {
			return err
		}
	}
	return nil
}
