package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// UpgradeConfig names the description of the newest release.
type UpgradeConfig struct {
	URL string `yaml:"url"`
}

// release is version.json, which `make release` writes.
type release struct {
	Version string `json:"version"`
	Date    string `json:"date,omitempty"`
	Notes   string `json:"notes,omitempty"` // an address
	Files   []struct {
		Name   string `json:"name"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	} `json:"files,omitempty"`
}

// upgradeCheck is the answer of `ramus upgrade --check`.
type upgradeCheck struct {
	Version string `json:"version"` // of this program
	Newest  string `json:"newest"`
	Newer   bool   `json:"newer"` // whether Newest comes after Version, or the order is not known
	Notes   string `json:"notes,omitempty"`
}

func upgradeCommand() command {
	var check bool
	return command{
		name: "upgrade", args: "--check",
		short: "ask whether there is a newer release",
		long: `
The key upgrade.url of the configuration names the file version.json of the newest
release. Nothing else is sent or fetched. ramus does not replace itself: install the
package or the binary of the release, and restart the server. Containers and their
commands go on meanwhile, and the next server continues with the same data folder.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&check, "check", false, "compare this program with the newest release")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			if !check {
				return usage("ramus does not replace itself; use --check, and install the new package or binary")
			}
			c, err := e.config()
			if err != nil {
				return err
			}
			if c.Upgrade.URL == "" {
				return errors.New("no address of version.json is configured; set upgrade.url")
			}
			r, err := fetchRelease(ctx, c.Upgrade.URL)
			if err != nil {
				return &exitStatus{exitAway, fmt.Errorf("cannot ask for the newest release: %w", err)}
			}
			answer := upgradeCheck{Version: buildVersion(), Newest: r.Version,
				Newer: isNewer(r.Version, buildVersion()), Notes: r.Notes}
			switch {
			case e.json:
				return e.writeJSON(answer)
			case answer.Newer:
				fmt.Fprintf(e.out, "%s is released, and this is %s\n", e.oneLine(r.Version, 100), answer.Version)
				if r.Notes != "" {
					fmt.Fprintln(e.out, e.oneLine(r.Notes, 500))
				}
			default:
				fmt.Fprintf(e.out, "%s is the newest release\n", answer.Version)
			}
			return nil
		},
	}
}

// Bounds of the request for version.json.
const (
	releaseWithin = 15 * time.Second
	releaseMax    = 1 << 20 // bytes
)

// fetchRelease reads version.json at an address.
func fetchRelease(ctx context.Context, address string) (r release, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return r, fmt.Errorf("upgrade.url is %q: want a URL such as https://ramus.example.org/version.json", address)
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return r, err
	}
	req.Header.Set("User-Agent", "ramus")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return r, fmt.Errorf("the answer is %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, releaseMax+1))
	if err != nil {
		return r, err
	}
	return parseRelease(b)
}

// parseRelease reads the text of version.json.
func parseRelease(b []byte) (r release, err error) {
	if len(b) > releaseMax {
		return r, fmt.Errorf("version.json has more than %d bytes", releaseMax)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("cannot read version.json: %w", err)
	}
	if r.Version == "" {
		return r, errors.New("version.json has no version")
	}
	return r, nil
}

// isNewer reports whether version a comes after b. Versions that are not numbers (v1.2.3) are newer if they differ.
func isNewer(a, b string) bool {
	x, okX := versionNumbers(a)
	y, okY := versionNumbers(b)
	if !okX || !okY {
		return a != b
	}
	for i := range x {
		if x[i] != y[i] {
			return x[i] > y[i]
		}
	}
	return false
}

// versionNumbers returns the numbers of a version such as v1.2.3 or v1.2.3-4-gabcdef, which is made of the former.
func versionNumbers(v string) (n [3]int, ok bool) {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "-")
	parts := strings.Split(v, ".")
	if len(parts) != 3 {
		return n, false
	}
	for i, p := range parts {
		var err error
		if n[i], err = strconv.Atoi(p); err != nil || n[i] < 0 {
			return n, false
		}
	}
	return n, true
}
