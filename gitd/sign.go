package gitd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/sshsig"
	"github.com/ramus-dev/ramus/internal/pattern"
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
	return publicLine(s.key.Public().(ed25519.PublicKey))
}

// publicLine returns a key as a line of authorized_keys, without the line end.
func publicLine(pub ed25519.PublicKey) string {
	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		panic(err) // an Ed25519 key always is one
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// AllowedSigners returns a file for gpg.ssh.allowedSignersFile, in which the signers are one principal.
func (s Signers) AllowedSigners(principal string) string {
	var b strings.Builder
	for _, key := range s {
		b.WriteString(allowedSigner(principal, key))
	}
	return b.String()
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
	return allowedSigner(principal, s.key.Public().(ed25519.PublicKey))
}

func allowedSigner(principal string, key ed25519.PublicKey) string {
	return fmt.Sprintf("%s namespaces=%q %s\n", principal, commitSpace, publicLine(key))
}

func (s *CommitSigner) sign(commit []byte) ([]byte, error) {
	return sshsig.Sign(s.key, commitSpace, commit)
}

// SignText signs a text in a namespace of OpenSSH other than git's, as ssh-keygen -Y verify reads it.
func (s *CommitSigner) SignText(space string, text []byte) ([]byte, error) {
	if space == "" || space == commitSpace {
		return nil, fmt.Errorf("cannot sign a text in the namespace %q: %w", space, ErrInvalid)
	}
	return sshsig.Sign(s.key, space, text)
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

// splitSignature returns a commit without the signature that withSignature adds, and the signature.
func splitSignature(commit []byte) (payload, signature []byte) {
	end := bytes.Index(commit, []byte("\n\n")) + 1
	inside := false
	for line := range bytes.Lines(commit[:end]) {
		rest, first := bytes.CutPrefix(line, []byte("gpgsig "))
		switch {
		case first:
			inside, signature = true, append(signature, rest...)
		case inside && line[0] == ' ':
			signature = append(signature, line[1:]...)
		default:
			inside, payload = false, append(payload, line...)
		}
	}
	return append(payload, commit[end:]...), signature
}

// NewSignerKey makes a private key for [NewCommitSigner], in the format of OpenSSH. The comment is not secret.
func NewSignerKey(comment string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key for commits: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key for commits: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// Signers are the public keys of those whose signatures count. The zero value has none.
type Signers []ed25519.PublicKey

// Public returns the signer itself.
func (s *CommitSigner) Public() Signers {
	return Signers{s.key.Public().(ed25519.PublicKey)}
}

// signersMax bounds the bytes of a file of signers.
const signersMax = 1 << 20

// ParseSigners returns the Ed25519 keys of one principal in a file for gpg.ssh.allowedSignersFile. Options other than
// namespaces, and patterns, are not understood, and their lines are left out. A line that is only a public key
// counts for every principal. Returns [ErrInvalid] if there are none.
func ParseSigners(text []byte, principal string) (Signers, error) {
	if len(text) > signersMax {
		return nil, fmt.Errorf("cannot read the signers: they have more than %d bytes: %w", signersMax, ErrTooLarge)
	}
	var list Signers
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, principal+" "); ok {
			line = strings.TrimPrefix(strings.TrimSpace(rest), fmt.Sprintf("namespaces=%q ", commitSpace))
		}
		if !strings.HasPrefix(line, ssh.KeyAlgoED25519+" ") {
			continue
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			continue
		}
		if k, ok := key.(ssh.CryptoPublicKey); ok {
			if pub, ok := k.CryptoPublicKey().(ed25519.PublicKey); ok {
				list = append(list, pub)
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("cannot read the signers: there is no Ed25519 key of %s: %w", principal, ErrInvalid)
	}
	return list, nil
}

// SignedCommit is a commit object as it is stored, with the result of a check of its name and its signature.
type SignedCommit struct {
	Parents []Hash
	Time    time.Time // of the committer; zero if it has none
	Message string
	// Fault is the reason why the commit is not one that a signer made. It is nil if it is.
	Fault error
}

// CheckCommit reads a commit and checks that its content has its name, and a signature of one of the signers. Returns
// [ErrNotFound] if there is no such commit.
func (r *Repo) CheckCommit(ctx context.Context, commit Hash, by Signers) (SignedCommit, error) {
	var s SignedCommit
	data, c, err := r.objects.RawCommit(ctx, commit)
	if err != nil {
		return s, fmt.Errorf("cannot read commit %s of %s: %w", commit, r.name, err)
	}
	s.Parents, s.Message = c.Parents, string(c.Message)
	if at := c.CommitterTime(); at != 0 {
		s.Time = time.Unix(at, 0).UTC()
	}
	payload, signature := splitSignature(data)
	switch sum := object.HashOf("commit", data); {
	case len(commit) == len(sum) && sum != commit:
		s.Fault = fmt.Errorf("its content has the name %s", sum)
	case len(signature) == 0:
		s.Fault = errors.New("it has no signature")
	default:
		s.Fault = errors.New("there is no key to compare with")
		for _, key := range by {
			if s.Fault = sshsig.Verify(key, commitSpace, payload, signature); s.Fault == nil {
				break
			}
		}
	}
	return s, nil
}

const (
	// commitMax bounds the bytes of a commit that is to be signed.
	commitMax = 1 << 20
	// parentsMax bounds its parents, each of which is looked up.
	parentsMax = 16
)

// datedPerson matches a person in a commit, with the time.
var datedPerson = pattern.New(`^(.+ <[^<>\n]*>) [0-9]{1,12} [+-][0-9]{4}$`)

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
