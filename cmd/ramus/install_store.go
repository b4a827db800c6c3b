package main

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/store"
)

// openStore opens the artifact store of a configuration. Returns nil if there is none.
func openStore(address string, secret *secrets) (store.Bucket, error) {
	if address == "" {
		return nil, nil
	}
	if len(address) >= 3 && strings.EqualFold(address[:3], "s3:") { // a scheme may be in capitals
		for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
			secret.known("artifacts."+strings.ToLower(name), secret.env(name)) // the library reads them itself
		}
	}
	b, err := store.OpenURL(address)
	if err != nil {
		return nil, fmt.Errorf("cannot open artifacts.url: %w", err)
	}
	return b, nil
}
