package replica

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// SecretMin is the least length of the secret of an installation, in bytes.
const SecretMin = 32

// errStranger is the error of a connection to a server that does not know the secret.
var errStranger = errors.New("the other side is no replica of this installation: it does not know replicas.secret")

// identity proves the knowledge of the installation's secret.
type identity struct {
	certificate tls.Certificate
	public      ed25519.PublicKey
}

func newIdentity(secret []byte) (*identity, error) {
	if len(secret) < SecretMin {
		return nil, fmt.Errorf("cannot use replicas.secret: it has %d bytes, and needs %d", len(secret), SecretMin)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "ramus replicas: tls", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	// Nobody looks at its names and times, because the key alone counts.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ramus replica"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	public := key.Public().(ed25519.PublicKey)
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, err
	}
	return &identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, public}, nil
}

// config is the configuration of both sides.
func (i *identity) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate}, NextProtos: []string{"http/1.1"},
		ClientAuth: tls.RequireAnyClientCert,
		// VerifyConnection takes the place of the check of names and authorities.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errStranger
			}
			// The handshake has proved that the other side has the private key.
			public, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !bytes.Equal(public, i.public) {
				return errStranger
			}
			return nil
		}}
}
