package store

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

// OpenURL opens the bucket that a URL names, file:///FOLDER or s3://BUCKET. The parameters of the latter are
//
//	region                        where the bucket is
//	prefix                        of all keys, "ramus/"
//	endpoint                      of a service other than AWS, "https://HOST[:PORT]"
//	use_path_style                "true": the bucket's name is in the path of URLs, not in the host's name
//	request_checksum_calculation  "when_required": requests have no CRC-32; default "when_supported"
//	profile                       of the AWS configuration files
//
// and have the meaning of the fields of [S3]. A URL that is none of these is a [record.ErrInvalid].
func OpenURL(address string) (Bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrInvalid, err)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrInvalid, err)
	}
	switch {
	case u.User != nil || u.Fragment != "":
	case u.Scheme == "file" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		if err := known(q, nil); err != nil {
			return nil, err
		}
		return OpenFolder(u.Path)
	case u.Scheme == "s3" && u.Host != "" && strings.Trim(u.Path, "/") == "":
		s := S3{Bucket: u.Host}
		if err := s.set(q); err != nil {
			return nil, err
		}
		return s.Open()
	}
	return nil, fmt.Errorf("%w address %q: want file:///FOLDER or s3://BUCKET?region=REGION", record.ErrInvalid,
		u.Redacted())
}

// set takes the parameters of a URL.
func (s *S3) set(q url.Values) (err error) {
	if err := known(q, []string{"region", "prefix", "endpoint", "use_path_style", "request_checksum_calculation", "profile"}); err != nil {
		return err
	}
	s.Region, s.Prefix, s.Endpoint, s.Profile = q.Get("region"), q.Get("prefix"), q.Get("endpoint"), q.Get("profile")
	if s.Prefix != "" {
		if err := checkKey(strings.TrimSuffix(s.Prefix, "/")); err != nil {
			return fmt.Errorf("%w prefix %q", record.ErrInvalid, s.Prefix)
		}
	}
	if v := q.Get("use_path_style"); v != "" {
		if s.PathStyle, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%w use_path_style %q: want true or false", record.ErrInvalid, v)
		}
	}
	switch v := q.Get("request_checksum_calculation"); v {
	case "", "when_supported":
	case "when_required":
		s.NoChecksums = true
	default:
		return fmt.Errorf("%w request_checksum_calculation %q: want when_supported or when_required", record.ErrInvalid, v)
	}
	return nil
}

// known refuses parameters whose names are not in names, and repeated parameters.
func known(q url.Values, names []string) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%w parameter %q", record.ErrInvalid, name)
		}
		if len(q[name]) > 1 {
			return fmt.Errorf("%w parameter %q: it is given twice", record.ErrInvalid, name)
		}
	}
	return nil
}
