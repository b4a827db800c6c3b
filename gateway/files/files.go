package files

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Mover moves files between people and containers. See [transfer.Mover].
type Mover interface {
	Uploads() *transfer.Spool
	Upload(ctx context.Context, c record.Caller, by gitd.Person, u *transfer.Upload) (transfer.Uploaded, error)
	Look(ctx context.Context, c record.Caller, by gitd.Person, f func(*transfer.Live) error) error
}

// API serves the routes of files. Its exported fields are its options, which may be changed until the first call of a
// method. All methods are safe for concurrent use.
type API struct {
	Mover      Mover
	Workspaces *workspace.Workspaces
	Git        *gitd.Server
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	once     sync.Once     // makes all below
	arriving route.Streams // uploads that are received
	taken    route.Streams // uploads that are received, wait or are written
	packing  route.Streams // archives
}

// MaxListed bounds the entries of a folder that are listed.
const MaxListed = 5000

// Routes returns the routes of files.
func (api *API) Routes() []route.Route {
	const one = "/api/workspaces/{workspace}"
	return []route.Route{
		{Method: "GET", Pattern: one + "/files", Access: route.AccessRead, Summary: "A folder of a workspace",
			Query: folderQuery{}, Response: Folder{}, Handle: api.list},
		{Method: "POST", Pattern: one + "/files", Access: route.AccessWrite, Body: -1,
			Summary: "Upload files into a workspace; they become one commit",
			Form:    uploadForm{}, Response: transfer.Uploaded{}, Handle: api.upload},
		{Method: "GET", Pattern: one + "/download", Access: route.AccessRead, Media: route.MediaBytes,
			Summary: "A file of a workspace, or an archive of a folder", Query: downloadQuery{}, Handle: api.download},
	}
}

type folderQuery struct {
	Path string `json:"path,omitempty" jsonschema:"slash-separated; the top of the work tree if empty"`
	Live bool   `json:"live,omitempty" jsonschema:"the container as it is now, with files that are not committed"`
}

// uploadForm describes the form that receive reads.
type uploadForm struct {
	Files   []byte `json:"files" jsonschema:"a file; its name may have folders, separated by slashes"`
	Folder  string `json:"folder,omitempty" jsonschema:"the folder of the files; the top of the work tree if empty"`
	Replace bool   `json:"replace,omitempty" jsonschema:"replace files of the same names"`
}

// Folder is a folder of a workspace.
type Folder struct {
	Path string `json:"path"`
	// Commit is the commit that has the folder. It is empty for the container.
	Commit  gitd.Hash        `json:"commit,omitempty"`
	Entries []transfer.Entry `json:"entries"`
	// More is set if there are more entries than the list has.
	More bool `json:"more,omitempty"`
}

func (api *API) list(c *route.Call) error {
	var q folderQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	return api.read(c, q.Live, false, func(ctx context.Context, tree transfer.Tree, s workspace.Workspace) error {
		f, err := List(ctx, tree, q.Path)
		if err != nil {
			return err
		}
		if !q.Live {
			f.Commit = s.Head
		}
		return c.Reply(f)
	})
}

// List returns a folder of a tree.
func List(ctx context.Context, tree transfer.Tree, folder string) (Folder, error) {
	list, err := tree.List(ctx, folder, MaxListed)
	if err != nil && !errors.Is(err, transfer.ErrTooMany) {
		return Folder{}, err
	}
	if list == nil {
		list = []transfer.Entry{}
	}
	return Folder{Path: folder, Entries: list, More: err != nil}, nil
}

// Committed returns the tree at the tip of a workspace's branch.
func (api *API) Committed(s workspace.Workspace) (transfer.Committed, error) {
	if s.Head == "" {
		return transfer.Committed{}, route.NewProblem(route.KindNotFound, "%s has no branch any more", s.Name)
	}
	repo, err := api.Git.Repo(s.Repository)
	return transfer.Committed{Repo: repo, Commit: s.Head}, err
}

// readWithin bounds a download as a whole. A container that is read is kept awake meanwhile.
const readWithin = 10 * time.Minute

// mostPacked bounds how many archives are made at once. One person may have a quarter of them.
const mostPacked = 8

// read has f read the workspace of a request, in its branch or in its container.
func (api *API) read(c *route.Call, live, archive bool,
	f func(context.Context, transfer.Tree, workspace.Workspace) error) error {
	ctx := c.R.Context()
	s, st, err := api.Workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	if live { // this may start a container, which needs the right to change the workspace
		if err := c.Who.CheckChangeCaller(st); err != nil {
			return err
		}
	}
	release, err := c.OpenStream()
	if err != nil {
		return err
	}
	defer release()
	if archive {
		api.once.Do(api.bound)
		packed, err := api.packing.Acquire(c.Who)
		if err != nil {
			p := route.NewProblem(route.KindLimited, "as many archives are made as may at once")
			p.RetryAfter = 5
			return p.WithHint("try again when another one has ended")
		}
		defer packed()
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	defer context.AfterFunc(c.Draining(), cancel)()
	if live {
		return api.Mover.Look(ctx, s.Caller, c.Who.Person(gitd.Person{}), func(t *transfer.Live) error {
			return f(ctx, t, s)
		})
	}
	t, err := api.Committed(s)
	if err != nil {
		return err
	}
	return f(ctx, t, s)
}

type downloadQuery struct {
	Path   string `json:"path,omitempty" jsonschema:"slash-separated; the top of the work tree if empty"`
	Format string `json:"format,omitempty" jsonschema:"of a folder: zip, or tar.gz"`
	Live   bool   `json:"live,omitempty" jsonschema:"the container as it is now, with files that are not committed"`
}

func (api *API) download(c *route.Call) error {
	var q downloadQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	return api.send(c, q)
}

// Download answers a page with a file of the branch, or with an archive of a folder. Both are attachments. An archive
// is made for pages of this server alone.
func (api *API) Download(c *route.Call) error {
	var q downloadQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Live {
		return route.NewProblem(route.KindInvalid, "files of the container come by a form").
			WithHint("open *Files* of the workspace")
	}
	switch site := c.R.Header.Get("Sec-Fetch-Site"); {
	case q.Format == "", site == "", site == "same-origin", site == "none":
		return api.send(c, q)
	}
	return route.NewProblem(route.KindDenied, "a page of another origin made this request").
		WithHint("open *Files* of the workspace, and repeat it there")
}

// DownloadLive is [API.Download] from the container, with the path and the format of an archive. It may start a
// container, so that only a POST may call it.
func (api *API) DownloadLive(c *route.Call, name, format string) error {
	return api.send(c, downloadQuery{Path: name, Format: format, Live: true})
}

// send answers with a file or an archive.
func (api *API) send(c *route.Call, q downloadQuery) error {
	format := transfer.Format(q.Format)
	if format != "" && format != transfer.FormatZip && format != transfer.FormatTar {
		return route.NewProblem(route.KindInvalid, "unknown format %.20q: want zip or tar.gz", q.Format)
	}
	return api.read(c, q.Live, format != "", func(ctx context.Context, t transfer.Tree, s workspace.Workspace) error {
		e, err := t.Look(ctx, q.Path)
		if err != nil {
			return err
		}
		c.W.Header().Set("Cache-Control", "private, no-store")
		c.W.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		switch {
		case e.Kind == transfer.KindFolder && format == "":
			return route.NewProblem(route.KindInvalid, "%.200q is a folder", q.Path).
				WithHint("`format=zip` or `format=tar.gz` makes an archive of it")
		case e.Kind == transfer.KindFolder:
			return api.sendArchive(ctx, c, t, q.Path, s.Name, format)
		case e.Kind == transfer.KindFile:
			return sendFile(ctx, c, t, q)
		}
		return route.NewProblem(route.KindInvalid, "%.200q is a link or a special file, and has no content of its own",
			q.Path)
	})
}

// sendFile answers with a file.
func sendFile(ctx context.Context, c *route.Call, t transfer.Tree, q downloadQuery) error {
	in, size, err := t.Open(ctx, q.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	c.MarkAttachment(path.Base(q.Path))
	if !q.Live { // a container may have the value of a secret, which is removed
		c.W.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
	if c.R.Method == http.MethodHead {
		return nil
	}
	if err := transfer.CopyFile(newSlowWriter(c), in, size); err != nil {
		return c.CutShort(err)
	}
	return nil
}

// sendArchive answers with an archive of a folder. Secrets are taken out before the files are compressed.
func (api *API) sendArchive(ctx context.Context, c *route.Call, t transfer.Tree, folder, name string,
	format transfer.Format) error {
	t = api.Mover.Uploads().Clean(t)
	plan, err := transfer.Find(ctx, t, folder)
	if err != nil {
		return err
	}
	if folder != "" {
		name += "-" + path.Base(folder)
	}
	c.MarkAttachment(name + "." + string(format))
	c.W.Header().Set("X-Ramus-Left-Out", strconv.Itoa(plan.Left))
	c.SendAsIs() // it is compressed, and has no secrets
	if c.R.Method == http.MethodHead {
		return nil
	}
	at := time.Now
	if api.Now != nil {
		at = api.Now
	}
	if err := transfer.Pack(ctx, newSlowWriter(c), format, t, plan, folder, name, at().UTC()); err != nil {
		return c.CutShort(fmt.Errorf("cannot make the archive: %w", err))
	}
	return nil
}
