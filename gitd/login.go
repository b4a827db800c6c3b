package gitd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"

	"github.com/ramus-dev/ramus/gitd/grant"
	gossh "golang.org/x/crypto/ssh"
)

// authorizedKeysMax bounds the bytes of the file, which is read at each login.
const authorizedKeysMax = 4 << 20

// authorizedKey returns the line of a public key in the current file. Returns [ErrDenied] if no line
// admits the key from addr.
func (s *Server) authorizedKey(pub gossh.PublicKey, addr netip.Addr) (grant.AuthorizedKey, error) {
	if s.AuthorizedKeys == "" {
		return grant.AuthorizedKey{}, fmt.Errorf("nobody may log in: %w", ErrDenied)
	}
	f, err := os.Open(s.AuthorizedKeys)
	if errors.Is(err, fs.ErrNotExist) {
		return grant.AuthorizedKey{}, fmt.Errorf("nobody may log in: %w", ErrDenied)
	}
	if err != nil {
		return grant.AuthorizedKey{}, fmt.Errorf("cannot read the authorized keys: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, authorizedKeysMax+1))
	if err != nil {
		return grant.AuthorizedKey{}, fmt.Errorf("cannot read the authorized keys: %w", err)
	}
	if len(text) > authorizedKeysMax {
		return grant.AuthorizedKey{}, fmt.Errorf("%s has more than %d bytes: %w", s.AuthorizedKeys, authorizedKeysMax,
			ErrTooLarge)
	}
	wanted := pub.Marshal()
	now := s.now()
	keys := grant.ParseAuthorizedKeys(text, func(line int, err error) {
		s.log().Warn("authorized key not used", "file", s.AuthorizedKeys, "line", line, "err", err)
	})
	for _, k := range keys {
		if bytes.Equal(k.Key.Marshal(), wanted) && k.Admits(addr, now) {
			return k, nil
		}
	}
	return grant.AuthorizedKey{}, fmt.Errorf("key %s is not authorized: %w", gossh.FingerprintSHA256(pub), ErrDenied)
}
