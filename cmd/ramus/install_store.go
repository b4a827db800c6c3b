package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file:///FOLDER
	_ "gocloud.dev/blob/s3blob"   // s3://BUCKET?…
)

// openStore opens the artifact store that a configuration names; nil where it names none.
func openStore(ctx context.Context, address string, secret *secrets) (*blob.Bucket, error) {
	if address == "" {
		return nil, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("artifacts.url: %w", err)
	}
	switch u.Scheme {
	case "file":
		// Files appear whole: each is written beside its place and renamed.
		q := u.Query()
		for key, value := range map[string]string{"create_dir": "1", "no_tmp_dir": "1", "metadata": "skip", "dir_file_mode": "0700"} {
			q.Set(key, value)
		}
		u.RawQuery = q.Encode()
	case "s3":
		for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
			secret.known("artifacts."+strings.ToLower(name), secret.env(name)) // the library reads them by itself
		}
	default:
		return nil, fmt.Errorf("artifacts.url is %q; want file:///FOLDER or s3://BUCKET?region=REGION", address)
	}
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("cannot open artifacts.url: %w", err)
	}
	return b, nil
}
