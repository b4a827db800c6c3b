package gitd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/crypto/ssh"
)

// CommitSigner signs commits as git does with gpg.format=ssh. Its Ed25519 key never leaves this process. Commits
// that are made elsewhere are passed to [Repo.SignCommit]. Methods are safe for concurrent use.
type CommitSigner struct{ key ed25519.PrivateKey }

// commitSpace is the namespace of git's signatures.
const commitSpace = "git"

// NewCommitSigner parses a private key as `ssh-keygen -t ed25519 -N ""` writes it, or in PKCS#8.
func NewCommitSigner(text []byte) (*CommitSigner, error) {
	raw, err := ssh.ParseRawPrivateKey(text)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, fmt.Errorf("cannot use the key for commits: it asks for a passphrase, and nobody is there to give it: %w", ErrInvalid)
	case err != nil:
		// The error of the parser may quote the text.
		return nil, fmt.Errorf("cannot use the key for commits: it is not a private key in the format of OpenSSH or PKCS#8: %w", ErrInvalid)
	}
	switch key := raw.(type) {
	case ed25519.PrivateKey:
		return &CommitSigner{key}, nil
	case *ed25519.PrivateKey:
		return &CommitSigner{*key}, nil
	}
	return nil, fmt.Errorf("cannot use the key for commits: it is not an Ed25519 key; `ssh-keygen -t ed25519` makes one: %w", ErrInvalid)
}

// PublicKey returns the public key as a line of authorized_keys, without the line end.
func (s *CommitSigner) PublicKey() string {
	key, err := ssh.NewPublicKey(s.key.Public())
	if err != nil {
		panic(err) // an Ed25519 key always is one
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// AllowedSigner returns a line of the file that gpg.ssh.allowedSignersFile names, with the line end. With it,
// anybody can check the commits of that person.
func (s *CommitSigner) AllowedSigner(who Person) string {
	principal := strings.Map(func(c rune) rune {
		if c <= ' ' || strings.ContainsRune(`",*?!`, c) || c == 0x7f {
			return '_' // they are patterns there
		}
		return c
	}, who.Email)
	if principal == "" {
		principal = "ramus"
	}
	return fmt.Sprintf("%s namespaces=%q %s\n", principal, commitSpace, s.PublicKey())
}

func (s *CommitSigner) sign(commit []byte) ([]byte, error) {
	return sshSign(s.key, commitSpace, commit)
}

// encodeCommit returns the commit as it is stored, signed by a signer. Nil means the server's, which may be nil too.
func (s *Server) encodeCommit(c object.RawCommit, by *CommitSigner) ([]byte, error) {
	data := c.Encode()
	if by == nil {
		by = s.Signer
	}
	if by == nil {
		return data, nil
	}
	signature, err := by.sign(data)
	if err != nil {
		return nil, fmt.Errorf("cannot sign a commit: %w", err)
	}
	return withSignature(data, signature), nil
}

// withSignature adds a signature after the headers of a commit, as git does.
func withSignature(commit, signature []byte) []byte {
	end := bytes.Index(commit, []byte("\n\n")) + 1
	var b bytes.Buffer
	b.Write(commit[:end])
	b.WriteString("gpgsig")
	for line := range bytes.Lines(bytes.TrimRight(signature, "\n")) {
		b.WriteByte(' ')
		b.Write(line)
	}
	b.WriteByte('\n')
	b.Write(commit[end:])
	return b.Bytes()
}

const (
	// commitMax bounds the bytes of a commit that is to be signed.
	commitMax = 1 << 20
	// parentsMax bounds its parents, each of which is looked up.
	parentsMax = 16
)

// datedPerson matches a person in a commit, with the time.
var datedPerson = regexp.MustCompile(`^(.+ <[^<>\n]*>) [0-9]{1,12} [+-][0-9]{4}$`)

// SignCommit signs a commit object that was made elsewhere and has no signature, for somebody who works on the
// branches. Returns [ErrInvalid] for anything but a plain commit. Returns [ErrDenied] for a commit that names
// another committer, that begins a history, or whose parent is in this repository but on none of the branches. A
// parent that is not in the repository may be any commit, because it has not been pushed yet.
func (r *Repo) SignCommit(ctx context.Context, commit []byte, committer Person, branches ...string) ([]byte, error) {
	if r.server.Signer == nil {
		return nil, fmt.Errorf("cannot sign a commit: this server has no key for it: %w", ErrInvalid)
	}
	if err := r.checkSignable(ctx, commit, committer, branches); err != nil {
		return nil, fmt.Errorf("cannot sign a commit of %s: %w", r.name, err)
	}
	return r.server.Signer.sign(commit)
}

func (r *Repo) checkSignable(ctx context.Context, commit []byte, committer Person, branches []string) error {
	if len(commit) > commitMax {
		return fmt.Errorf("it has more than %d bytes: %w", commitMax, ErrTooLarge)
	}
	c, err := object.ParseCommit(commit)
	// An object that is not encoded again to the same bytes has more in it than was parsed.
	if err != nil || !bytes.Equal(c.Encode(), commit) || bytes.IndexByte(commit, 0) >= 0 || !datedPerson.MatchString(c.Author) {
		return fmt.Errorf("it is not a commit, or it has unknown headers: %w", ErrInvalid)
	}
	if len(c.Parents) > parentsMax {
		return fmt.Errorf("it has more than %d parents: %w", parentsMax, ErrInvalid)
	}
	who := datedPerson.FindStringSubmatch(c.Committer)
	if who == nil || who[1] != committer.Ident() {
		return fmt.Errorf("its committer is %.200q, not %q: %w", c.Committer, committer.Ident(), ErrDenied)
	}
	if len(c.Parents) == 0 {
		return fmt.Errorf("it begins a history of its own: %w", ErrDenied)
	}
	for _, p := range c.Parents {
		if err := CheckHash(p); err != nil {
			return err
		}
		if err := r.checkOnAny(ctx, p, branches); err != nil {
			return err
		}
	}
	return nil
}

// checkOnAny returns [ErrDenied] for a commit that is in the repository and on none of the branches.
func (r *Repo) checkOnAny(ctx context.Context, commit Hash, branches []string) error {
	if _, err := r.objects.Commit(ctx, commit); errors.Is(err, ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	for _, b := range branches {
		tip, err := r.readRef(ctx, "refs/heads/"+b)
		if errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		if ok, err := r.isAncestor(ctx, commit, tip); err != nil || ok {
			return err
		}
	}
	return fmt.Errorf("its parent %s is on none of the branches %s: %w", commit, strings.Join(branches, ", "), ErrDenied)
}
