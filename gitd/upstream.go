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

	"github.com/ramus-dev/ramus/gitd/gitfile"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Upstream is the repository from which one was imported.
type Upstream struct {
	// URL is a path or URL that git can clone. A password in it is used, but neither stored nor logged. Credential
	// is the better place for one.
	URL string
	// Branch is the branch of upstream that becomes the base. Empty means the name of the base, or at an import
	// the branch of upstream's HEAD.
	Branch string
	// Credential returns the credential. It is called before each conversation with upstream, so the credential
	// may live for minutes. Nil means that there is none.
	Credential func(ctx context.Context) (Credential, error)
}

// Location returns the URL without a password.
func (u Upstream) Location() string { return withoutPassword(u.URL) }

// Credential admits git to an upstream. The URL decides which fields are used. For http and https these are User
// and Password, for ssh the files.
type Credential struct {
	User, Password string
	// KeyFile is a private key that ssh can read without a passphrase. Empty means the keys that ssh finds itself.
	KeyFile string
	// KnownHosts has the trusted host keys. Empty means the files of ssh itself.
	KnownHosts string
}

// resolveSource returns the source that children of git get.
func (u Upstream) resolveSource(ctx context.Context) (source, error) {
	src, err := parseSource(u.URL)
	if err != nil || u.Credential == nil || src.local {
		return src, err
	}
	cred, err := u.Credential(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return src, context.Cause(ctx)
		}
		return src, fmt.Errorf("cannot get the credential for %s: %w: %w", src.location, err, ErrUpstream)
	}
	return src, src.useCredential(cred)
}

// useCredential passes a credential to the children that talk to s in their environment. It is in no URL, no
// argument and no file.
func (s *source) useCredential(c Credential) error {
	if s.site != "" {
		if c.Password != "" {
			s.addPassword(url.UserPassword(c.User, c.Password))
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
		// The path is read by a shell, and then by ssh, which interprets quotes and %-signs.
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

// addPassword sends a password to the host of the source only. A redirect must not carry it away.
func (s *source) addPassword(user *url.Userinfo) {
	password, _ := user.Password()
	code := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
	s.config = append(s.config, "http."+s.site+".extraHeader=Authorization: Basic "+code)
	if s.hidden == nil {
		s.hidden = map[string]string{}
	}
	s.hidden["upstream's password"], s.hidden["upstream's credential"] = password, code
}

// secrets returns the values that the output of git and of the other side must not show.
func (s source) secrets() *redact.Secrets {
	secrets, _ := redact.New(s.hidden)
	return secrets
}

// progressWriter returns progress without credentials. done must be called at the end.
func (s source) progressWriter(progress io.Writer) (lines *progressLines, done func()) {
	if progress == nil {
		progress = io.Discard
	}
	clean := s.secrets().Writer(progress)
	lines = newProgress(clean)
	return lines, func() {
		lines.flush()
		_ = clean.Flush() // the reader may be gone
	}
}

// redactedError is an error of git without the credential that its text may quote.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

func (s source) redactError(err error) error {
	if err == nil {
		return nil
	}
	if text := s.secrets().String(err.Error()); text != err.Error() {
		return &redactedError{text, err}
	}
	return err
}

// The keys of the repository's own configuration that name its upstream.
const (
	keyUpstream  = "ramus.upstream"
	keyRefreshed = "ramus.refreshed"
)

// RefreshedAt returns the time at which the base was last up to date with upstream. Returns zero if it never was.
func (r *Repo) RefreshedAt(ctx context.Context) (time.Time, error) {
	own, err := gitfile.ReadConfig(r.dir)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read the configuration of %s: %w", r.name, err)
	}
	t, err := time.Parse(time.RFC3339, own[keyRefreshed])
	if err != nil {
		return time.Time{}, nil // written by somebody else, and only shown
	}
	return t, nil
}

// recordRefresh records that the repository is up to date with upstream.
func (r *Repo) recordRefresh(ctx context.Context, src source) error {
	for _, kv := range [][2]string{{keyUpstream, src.location}, {keyRefreshed, r.server.now().UTC().Format(time.RFC3339)}} {
		if err := r.server.git.Run(ctx, gitcmd.Command{Repo: r.dir, Args: []string{"config", "--local", kv[0], kv[1]}}); err != nil {
			return err
		}
	}
	return nil
}
