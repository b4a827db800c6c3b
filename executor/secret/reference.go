package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// Bounds of references.
const (
	readWithin = 15 * time.Second
	// fresh is the time for which a value that was read is used again.
	fresh      = time.Minute
	maxKept    = 1000
	maxAnswer  = 1 << 20
	maxMessage = 300
)

// Resolver reads the values of references on the host:
//
//	env://NAME            a variable of the server's environment
//	file:///PATH          a file
//	vault://PATH#FIELD    a field of a secret in Vault's KV store, version 2; PATH begins with the mount
//	op://VAULT/ITEM/FIELD a field of 1Password, by its program op
//
// Its exported fields are its options. Methods are safe for concurrent use.
type Resolver struct {
	// Environ is the server's environment, "K=V".
	Environ []string
	// VaultURL is the address of Vault, such as https://vault.example.org:8200, and VaultToken returns its token.
	// VaultNamespace may be empty. Without an address there is no Vault.
	VaultURL       string
	VaultToken     func() (string, error)
	VaultNamespace string
	// HTTP sends the requests. Nil means [http.DefaultClient].
	HTTP *http.Client
	// Op is the program of 1Password. The default is op.
	Op  string
	Now func() time.Time

	mu   sync.Mutex // guards kept
	kept map[string]kept
}

// kept is a value that was read.
type kept struct {
	value string
	at    time.Time
}

var variable = pattern.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckReference returns an error for a reference of another form.
func CheckReference(ref string) error {
	scheme, rest, ok := strings.Cut(ref, "://")
	bad := func(want string) error { return fmt.Errorf("%.100q is no reference of that kind; want %s", ref, want) }
	if len(ref) > 1000 || strings.ContainsFunc(ref, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("a reference has at most 1000 bytes, and no control characters")
	}
	switch {
	case !ok:
	case scheme == "env":
		if !variable.MatchString(rest) {
			return bad("env://NAME")
		}
		return nil
	case scheme == "file":
		if !path.IsAbs(rest) {
			return bad("file:///PATH")
		}
		return nil
	case scheme == "vault":
		if _, _, _, err := splitVault(rest); err != nil {
			return bad("vault://MOUNT/PATH#FIELD")
		}
		return nil
	case scheme == "op":
		if len(strings.Split(rest, "/")) < 3 || strings.Contains(rest, "//") {
			return bad("op://VAULT/ITEM/FIELD")
		}
		return nil
	}
	return fmt.Errorf("%.100q is no reference; want env://, file://, vault:// or op://", ref)
}

// Read returns the value of a reference. White space around it is not a part of it. A value that was read less than a
// minute ago is returned again.
func (r *Resolver) Read(ctx context.Context, ref string) (string, error) {
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	r.mu.Lock()
	have, ok := r.kept[ref]
	r.mu.Unlock()
	if ok && now().Sub(have.at) < fresh {
		return have.value, nil
	}
	if err := CheckReference(ref); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	value, err := r.read(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", ref, err)
	}
	value = strings.TrimSpace(value)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil || len(r.kept) >= maxKept {
		r.kept = make(map[string]kept)
	}
	r.kept[ref] = kept{value, now()}
	return value, nil
}

func (r *Resolver) read(ctx context.Context, ref string) (string, error) {
	scheme, rest, _ := strings.Cut(ref, "://")
	switch scheme {
	case "env":
		for _, kv := range r.Environ {
			if v, ok := strings.CutPrefix(kv, rest+"="); ok {
				return v, nil
			}
		}
		return "", errors.New("the server's environment has no such variable")
	case "file":
		return readFile(rest)
	case "vault":
		return r.readVault(ctx, rest)
	default:
		return r.readOp(ctx, ref)
	}
}

func readFile(name string) (string, error) {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	if err == nil && len(b) > maxValue {
		err = fmt.Errorf("it has more than %d bytes", maxValue)
	}
	return string(b), err
}

// splitVault splits MOUNT/PATH#FIELD.
func splitVault(rest string) (mount, name, field string, err error) {
	where, field, ok := strings.Cut(rest, "#")
	mount, name, ok2 := strings.Cut(where, "/")
	if !ok || !ok2 || mount == "" || name == "" || field == "" || strings.Contains(path.Clean("/"+where)+"/", "/../") ||
		path.Clean("/"+where) != "/"+where {
		return "", "", "", errors.New("want MOUNT/PATH#FIELD")
	}
	return mount, name, field, nil
}

// readVault reads a field by Vault's HTTP API for KV, version 2.
func (r *Resolver) readVault(ctx context.Context, rest string) (string, error) {
	if r.VaultURL == "" {
		return "", errors.New("the configuration has no `vault.url`")
	}
	mount, name, field, err := splitVault(rest)
	if err != nil {
		return "", err
	}
	at, err := url.JoinPath(r.VaultURL, "v1", mount, "data", name)
	if err != nil {
		return "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", err
	}
	token, err := r.VaultToken()
	if err != nil {
		return "", err
	}
	q.Header.Set("X-Vault-Token", token)
	q.Header.Set("X-Vault-Request", "true")
	if r.VaultNamespace != "" {
		q.Header.Set("X-Vault-Namespace", r.VaultNamespace)
	}
	client := r.HTTP
	if client == nil {
		client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	answer, err := client.Do(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var got struct {
		Data struct {
			Data map[string]any `json:"data"`
		} `json:"data"`
		Errors []string `json:"errors"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&got); err != nil && answer.StatusCode == http.StatusOK {
		return "", fmt.Errorf("cannot read the answer of Vault: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d from Vault: %.*s", answer.StatusCode, maxMessage, strings.Join(got.Errors, "; "))
	}
	value, ok := got.Data.Data[field].(string)
	if !ok {
		return "", fmt.Errorf("the secret has no field %s with a text", field)
	}
	return value, nil
}

// readOp reads a field by the program of 1Password.
func (r *Resolver) readOp(ctx context.Context, ref string) (string, error) {
	program := r.Op
	if program == "" {
		program = "op"
	}
	cmd := exec.CommandContext(ctx, program, "read", "--no-newline", "--", ref)
	cmd.Env = r.Environ
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{w: &out, left: maxValue}, &limited{w: &said, left: maxMessage}
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", errors.New("the program op is not installed on the server")
		}
		return "", fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(said.String()), " "))
	}
	return out.String(), nil
}

// limited drops the bytes that are written beyond a limit.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	if _, err := l.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}
