package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	parcel "github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/gateway/export"
)

// Export copies the export of a caller, or of one run, to w. It may end in the middle with an error.
func (c *Client) Export(ctx context.Context, of string, one bool, q export.Query, w io.Writer) (export.Summary, error) {
	kind := "callers"
	if one {
		kind = "runs"
	}
	var about export.Summary
	resp, err := c.send(ctx, "GET", "/api/"+kind+"/"+segment(of)+"/export"+query(q), nil, nil)
	if err != nil {
		return about, err
	}
	defer resp.Body.Close()
	text, err := base64.StdEncoding.DecodeString(resp.Header.Get(export.SummaryHeader))
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err != nil {
		return about, fmt.Errorf("cannot read the server's answer: %w", err)
	}
	if _, err = io.Copy(w, resp.Body); err != nil {
		return about, broken(ctx, err)
	}
	return about, nil
}

// Import sends an export of another server.
func (c *Client) Import(ctx context.Context, q export.Import, in io.Reader) (parcel.Imported, error) {
	return c.takeIn(ctx, q, in, export.MediaBundle)
}

// ImportLink has the server take in the export that a link of another server leads to.
func (c *Client) ImportLink(ctx context.Context, q export.Import, link string) (parcel.Imported, error) {
	return c.takeIn(ctx, q, strings.NewReader(link), export.MediaLink)
}

func (c *Client) takeIn(ctx context.Context, q export.Import, in io.Reader, media string) (done parcel.Imported, err error) {
	resp, err := c.send(ctx, "POST", "/api/import"+query(q), in, http.Header{"Content-Type": {media}})
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&done); err != nil {
		return done, fmt.Errorf("cannot read the server's answer: %w", err)
	}
	return done, nil
}

// ExportLink makes a link to the export of a run that opens without a token.
func (c *Client) ExportLink(ctx context.Context, run string) (export.Link, error) {
	return post[export.Link](ctx, c, "/api/runs/"+segment(run)+"/export/link", nil)
}

// Cast copies the recording of a run to w.
func (c *Client) Cast(ctx context.Context, run string, w io.Writer) error {
	return c.copyTo(ctx, "/api/runs/"+segment(run)+"/cast", w)
}
