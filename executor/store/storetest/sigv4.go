package storetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The signatures of requests, after "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)" of the
// S3 API reference.

const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeFormat = "20060102T150405Z"
	// clockSkew is how far the time of a request may be from that of the service.
	clockSkew = 15 * time.Minute
)

// authorization has the parts of the Authorization header.
type authorization struct {
	key, date, region, service, end string // of the credential
	headers                         []string
	signature                       string
}

func parseAuthorization(s string) (a authorization, err error) {
	rest, ok := strings.CutPrefix(s, algorithm+" ")
	if !ok {
		return a, fmt.Errorf("it is not signed with %s: %q", algorithm, s)
	}
	fields := make(map[string]string)
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(fields) != 3 || len(scope) != 5 || fields["SignedHeaders"] == "" || fields["Signature"] == "" {
		return a, fmt.Errorf("not a header of %s: %q", algorithm, s)
	}
	return authorization{scope[0], scope[1], scope[2], scope[3], scope[4], strings.Split(fields["SignedHeaders"], ";"),
		fields["Signature"]}, nil
}

// checkSignature returns why a request is not signed with a secret for a region.
func checkSignature(r *http.Request, key, secret, region string, now time.Time) error {
	a, err := parseAuthorization(r.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	stamp := r.Header.Get("X-Amz-Date")
	at, err := time.Parse(timeFormat, stamp)
	switch {
	case err != nil:
		return err
	case at.Sub(now).Abs() > clockSkew:
		return fmt.Errorf("it was signed at %s, it is %s", stamp, now.UTC().Format(timeFormat))
	case a.key != key:
		return fmt.Errorf("there is no key %q", a.key)
	case a.date != stamp[:8] || a.region != region || a.service != "s3" || a.end != "aws4_request":
		return fmt.Errorf("its scope is %s/%s/%s/%s, not %s/%s/s3/aws4_request", a.date, a.region, a.service, a.end,
			stamp[:8], region)
	case !slices.IsSorted(a.headers) || !slices.Contains(a.headers, "host"):
		return fmt.Errorf("signed are %q", a.headers)
	}
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(a.headers, name) {
			return fmt.Errorf("%s is not signed", name)
		}
	}
	toSign := strings.Join([]string{algorithm, stamp, strings.Join([]string{a.date, region, "s3", "aws4_request"}, "/"),
		hexSum([]byte(canonical(r, a.headers)))}, "\n")
	sign := []byte("AWS4" + secret)
	for _, part := range []string{a.date, region, "s3", "aws4_request", toSign} {
		mac := hmac.New(sha256.New, sign)
		mac.Write([]byte(part))
		sign = mac.Sum(nil)
	}
	if want := hex.EncodeToString(sign); !hmac.Equal([]byte(want), []byte(a.signature)) {
		return fmt.Errorf("its signature is %s, want %s of\n%s\nand\n%s", a.signature, want, toSign, canonical(r, a.headers))
	}
	return nil
}

// canonical returns the canonical form of a request.
func canonical(r *http.Request, headers []string) string {
	var query []string
	for name, values := range r.URL.Query() {
		for _, value := range values {
			query = append(query, encode(name, "")+"="+encode(value, ""))
		}
	}
	slices.Sort(query)
	lines := []string{r.Method, encode(r.URL.Path, "/"), strings.Join(query, "&")}
	for _, name := range headers {
		values := slices.Clone(r.Header.Values(name))
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			values = []string{fmt.Sprint(r.ContentLength)}
		}
		for i := range values {
			values[i] = strings.Join(strings.Fields(values[i]), " ")
		}
		lines = append(lines, name+":"+strings.Join(values, ","))
	}
	return strings.Join(append(lines, "", strings.Join(headers, ";"), r.Header.Get("X-Amz-Content-Sha256")), "\n")
}

// encode is the UriEncode of the specification. The characters of safe are left as they are.
func encode(s, safe string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~"+safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// escapeKey is how lists with encoding-type=url have a key.
func escapeKey(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }
