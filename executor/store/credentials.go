package store

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// credentials returns the source of the credentials of requests.
func (s S3) credentials(transport http.RoundTripper) *credentials.Credentials {
	// The addresses of a machine's own credentials lead nowhere on other machines.
	machine := &credentials.IAM{Region: s.Region, Client: &http.Client{Transport: transport, Timeout: 10 * time.Second}}
	switch {
	case s.Key != "":
		return credentials.NewStaticV4(s.Key, s.Secret, "")
	case s.Profile != "":
		return credentials.New(&firstOf{providers: []credentials.Provider{&credentials.FileAWSCredentials{Profile: s.Profile}}})
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return credentials.New(&firstOf{providers: []credentials.Provider{&credentials.EnvAWS{}, machine}})
	default:
		return credentials.New(&firstOf{providers: []credentials.Provider{&credentials.EnvAWS{},
			&credentials.FileAWSCredentials{}, machine}})
	}
}

// region is the region of the environment, if s names none.
func (s S3) region() string {
	return cmp.Or(s.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
}

// firstOf gives the credentials of the first provider that has some. Unlike the library's own chain, it fails if none has:
// requests would be anonymous otherwise, and be denied without a reason.
type firstOf struct {
	providers []credentials.Provider
	found     credentials.Provider // the provider of the last credentials; nil for none
}

// RetrieveWithCredContext implements [credentials.Provider].
func (f *firstOf) RetrieveWithCredContext(c *credentials.CredContext) (credentials.Value, error) {
	var errs []error
	for _, p := range f.providers {
		v, err := p.RetrieveWithCredContext(c)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			f.found = p
			return v, nil
		}
		if err == nil {
			err = fmt.Errorf("%s has no keys", providerName(p))
		}
		errs = append(errs, err)
	}
	return credentials.Value{}, fmt.Errorf("no credentials found: %w", errors.Join(errs...))
}

// Retrieve implements [credentials.Provider].
func (f *firstOf) Retrieve() (credentials.Value, error) { return f.RetrieveWithCredContext(nil) }

// IsExpired implements [credentials.Provider].
func (f *firstOf) IsExpired() bool { return f.found == nil || f.found.IsExpired() }

// providerName returns the name of a source of credentials for an error, such as "FileAWSCredentials".
func providerName(p credentials.Provider) string {
	name := fmt.Sprintf("%T", p)
	return name[strings.LastIndexByte(name, '.')+1:]
}
