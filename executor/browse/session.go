package browse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// maxState is the largest storage state, in bytes.
const maxState = 256 << 10

// auth makes the session that the page is looked at with. The output of its command is secret. It is kept nowhere, and its values are taken
// out of all evidence.
func (k *look) auth(ctx context.Context, p page) (json.RawMessage, error) {
	if k.spec.Auth == "" {
		return nil, nil
	}
	var out bytes.Buffer
	limit := &text.Limit{W: &out, Left: maxState}
	said := &text.Tail{Limit: maxSaid}
	_, errs, flush := k.in.Secrets.Writers(nil, said)
	exit, err := k.command(ctx, k.spec.Auth, authWithin, limit, errs, "RAMUS_PAGE_URL="+p.url)
	flush()
	if err != nil {
		return nil, err
	}
	if exit.Code != 0 || exit.Reason != "" {
		return nil, unverified("no session could be made: `%s` %s: %s", k.spec.Auth, howEnded(exit),
			lastLines(said.String()))
	}
	if limit.Cut {
		return nil, unverified("no session could be made: `%s` printed more than %d KiB", k.spec.Auth, maxState>>10)
	}
	state, values, err := parseState(out.Bytes())
	if err != nil {
		return nil, unverified("no session could be made: what `%s` printed is no storage state: %v", k.spec.Auth, err)
	}
	k.secrets = k.secrets.With(values)
	return state, nil
}

// storageState is a session as Playwright keeps it.
type storageState struct {
	Cookies []storedCookie `json:"cookies"`
	Origins []storedOrigin `json:"origins"`
}

type storedCookie struct {
	Name         string   `json:"name"`
	Value        string   `json:"value"`
	Domain       string   `json:"domain,omitempty"`
	Path         string   `json:"path,omitempty"`
	URL          string   `json:"url,omitempty"`
	Expires      *float64 `json:"expires,omitempty"`
	HTTPOnly     bool     `json:"httpOnly,omitempty"`
	Secure       bool     `json:"secure,omitempty"`
	SameSite     string   `json:"sameSite,omitempty"`
	PartitionKey string   `json:"partitionKey,omitempty"`
}

type storedOrigin struct {
	Origin       string       `json:"origin"`
	LocalStorage []storedItem `json:"localStorage"`
}

type storedItem struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// parseState checks a storage state, and returns its secret values. No error contains a part of the state.
func parseState(text []byte) (state json.RawMessage, values map[string]string, err error) {
	var s storageState
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&s) != nil {
		return nil, nil, errors.New(`want {"cookies": […], "origins": […]} with the fields of Playwright's, and nothing else`)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("something follows it")
	}
	values = make(map[string]string)
	secret := func(value string) {
		for _, v := range append(innerTokens(value), value) {
			values["of the session, "+strconv.Itoa(len(values)+1)] = v
		}
	}
	for _, c := range s.Cookies {
		if c.Name == "" || c.Domain == "" && c.URL == "" {
			return nil, nil, errors.New("a cookie needs a name and a domain or url")
		}
		secret(c.Value)
		if plain, err := url.QueryUnescape(c.Value); err == nil && plain != c.Value {
			secret(plain)
		}
	}
	for _, o := range s.Origins {
		for _, item := range o.LocalStorage {
			secret(item.Value)
		}
	}
	s.Cookies, s.Origins = slices.Concat([]storedCookie{}, s.Cookies), slices.Concat([]storedOrigin{}, s.Origins)
	return record.Marshal(s), values, nil
}

// innerTokens returns the texts within a value that is JSON which look like credentials, long and without white space.
func innerTokens(value string) (list []string) {
	var v any
	if json.Unmarshal([]byte(value), &v) != nil {
		return nil
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if len(v) >= 16 && len(strings.Fields(v)) == 1 {
				list = append(list, v)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return list
}
