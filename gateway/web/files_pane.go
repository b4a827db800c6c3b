package web

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gateway/files"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// maxFileRows bounds the entries that the pane of files shows.
const maxFileRows = 500

// filesPane shows the folders of a workspace, takes uploads and offers downloads.
type filesPane struct {
	executor *executor.Executor
	files    *files.API
	address  string
}

func (filesPane) Name() string  { return paneFiles }
func (filesPane) Title() string { return "Files" }
func (filesPane) Icon() string  { return "folder" }

// filesRows are the rows of the pane of files. All texts are clean.
type filesRows struct {
	Folder string // as the branch has it
	Crumbs []fileRow
	Rows   []fileRow
	More   bool
	Pack   string // the link to the folder as an archive, without its format; empty for none
	Live   string // the path of the form that downloads from the container

	// Typed and Replace are the form, as it was sent.
	Typed   string
	Replace bool
	Failed  string   // the subject of Wrong
	Wrong   []string // why the files were refused
	Hint    string
	Sent    string // the result of an upload
	Most    string // the limits of an upload
	Bytes   int64
	Files   int
}

// fileRow is an entry of a folder, or a folder above it.
type fileRow struct {
	Name, Icon, Href, Size, Note string
	Save                         bool // the link saves a file
}

// uploadProblem is why a form of files was refused, for its page.
type uploadProblem struct {
	folder  string
	replace bool
	failed  string
	wrong   []string
	hint    string
}

func (p filesPane) Show(c *route.Call, page *Page, s workspace.Workspace) (template.HTML, error) {
	q := c.R.URL.Query()
	rows := &filesRows{Folder: strings.Trim(q.Get("path"), "/"),
		Live:  p.address + workspacePath(s.ID) + "/download",
		Most:  fmt.Sprintf("%d files and %d MiB", transfer.MaxFiles, transfer.MaxBytes>>20),
		Bytes: transfer.MaxBytes, Files: transfer.MaxFiles}
	rows.Typed = rows.Folder
	if w := page.wrong; w != nil {
		rows.Typed, rows.Replace, rows.Failed, rows.Wrong, rows.Hint = w.folder, w.replace, w.failed, w.wrong, w.hint
	} else {
		rows.Sent = sentWords(q)
	}
	note, err := p.list(c.R.Context(), rows, s)
	if err != nil {
		return "", err
	}
	return showPane(c, page, s, "pane_files", p.executor.AgentNames(), rows, note)
}

// list fills in the folder. note says why there is none.
func (p filesPane) list(ctx context.Context, rows *filesRows, s workspace.Workspace) (note string, err error) {
	at := p.address + workspacePath(s.ID)
	rows.Crumbs = crumbs(at, rows.Folder)
	tree, err := p.files.Committed(s)
	if err != nil {
		return "The branch is gone, and its files with it.", nil
	}
	f, err := files.List(ctx, tree, rows.Folder)
	switch {
	case errors.Is(err, gitd.ErrNotFound), errors.Is(err, gitd.ErrInvalid):
		return "The branch has no such folder. A file that is uploaded to it makes it.", nil
	case err != nil:
		return "", err
	}
	rows.Pack = at + "/download?path=" + url.QueryEscape(rows.Folder) + "&format="
	rows.More = f.More || len(f.Entries) > maxFileRows
	for _, e := range f.Entries[:min(len(f.Entries), maxFileRows)] {
		rows.Rows = append(rows.Rows, fileRowOf(at, e))
	}
	return "", nil
}

// fileRowOf returns the row of an entry. at is the path of the workspace.
func fileRowOf(at string, e transfer.Entry) fileRow {
	row := fileRow{Name: render.OneLine(path.Base(e.Path), 200), Icon: "file"}
	switch e.Kind {
	case transfer.KindFolder:
		row.Icon, row.Href = "folder", folderHref(at, e.Path)
	case transfer.KindFile:
		row.Href, row.Save, row.Size = at+"/download?path="+url.QueryEscape(e.Path), true, bytesize.Text(e.Size)
	case transfer.KindLink:
		row.Note = "link"
	default:
		row.Note = "submodule"
	}
	return row
}

// folderHref returns a link to the pane with a folder. at is the path of the workspace.
func folderHref(at, folder string) string {
	return at + "?" + url.Values{"pane": {paneFiles}, "path": {folder}}.Encode()
}

// crumbs returns the folders above a folder, the top first, and the folder itself without a link. The top has none.
func crumbs(at, folder string) []fileRow {
	if folder == "" {
		return nil
	}
	list := []fileRow{{Name: "Top", Href: folderHref(at, "")}}
	above := ""
	for part := range strings.SplitSeq(folder, "/") {
		above = path.Join(above, part)
		list = append(list, fileRow{Name: render.OneLine(part, 80), Href: folderHref(at, above)})
		if len(list) > transfer.MaxDepth {
			break
		}
	}
	list[len(list)-1].Href = ""
	return list
}

// sentWords describes the result of an upload by the parameters of the page after it.
func sentWords(q url.Values) string {
	sent, err := strconv.Atoi(q.Get("sent"))
	if err != nil || sent < 1 || sent > transfer.MaxFiles {
		return ""
	}
	words, them := fmt.Sprintf("%d files are in the container.", sent), "them"
	if sent == 1 {
		words, them = "The file is in the container.", "it"
	}
	switch left, _ := strconv.Atoi(q.Get("left")); {
	case left <= 0:
		return words + " The branch has " + them + "."
	case left >= sent:
		return words + " No commit has " + them + ", because .gitignore leaves " + them + " out."
	default:
		return words + fmt.Sprintf(" The branch has them, except %d that .gitignore leaves out.", left)
	}
}

// fileForms carries out the forms of the pane of files, and sends files.
type fileForms struct {
	shell *shell
	files *files.API // nil means that there are no uploads and downloads
	page  *workspacePages
}

func (h *fileForms) register(t *table) {
	if h.files == nil {
		return
	}
	const download = "/workspaces/{workspace}/download"
	t.upload("/workspaces/{workspace}/files", "Upload files into a workspace, by its page", -1, h.uploadFiles)
	t.file(download, "A file of a workspace, or an archive of a folder, for people", route.MediaBytes, h.files.Download)
	t.route(route.Route{Method: "POST", Pattern: download, Access: t.write, Media: route.MediaBytes,
		Summary: "A file or a folder of a workspace's container, by its page", Handle: h.downloadLive})
}

// uploadFiles takes the form of files. A script gets the result as JSON, a browser the page with the folder or with
// the mistakes.
func (h *fileForms) uploadFiles(c *route.Call) error {
	done, s, form, err := h.files.UploadForm(c)
	if !c.WantsPage() {
		if err != nil {
			return err
		}
		return c.Reply(done)
	}
	if err != nil {
		return h.refuseFiles(c, s, form, err)
	}
	q := url.Values{"pane": {paneFiles}, "path": {form.Folder}, "sent": {strconv.Itoa(len(done.Paths))},
		"left": {strconv.Itoa(len(done.Ignored))}}
	return see(c, workspacePath(s.ID)+"?"+q.Encode())
}

// refuseFiles answers with the page of the workspace, with the mistakes next to the field of the files.
func (h *fileForms) refuseFiles(c *route.Call, s workspace.Workspace, form files.Form, err error) error {
	p := route.AsProblem(err, c.Who)
	if s.ID == "" || p.Kind == route.KindInternal || p.Kind == route.KindDenied || p.Kind == route.KindGone {
		return err
	}
	w := &uploadProblem{folder: form.Folder, replace: form.Replace, failed: "The upload failed.", hint: p.Hint,
		wrong: []string{render.ClipClean(p.Error(), 2000)}}
	var refused *transfer.Refused
	if errors.As(err, &refused) {
		w.failed, w.wrong = "Nothing was uploaded.", nil
		for _, m := range refused.Mistakes {
			line := render.ClipClean(m.Why, 500)
			if m.Name != "" {
				line = render.OneLine(m.Name, 200) + ": " + line
			}
			w.wrong = append(w.wrong, line)
		}
		if refused.More > 0 {
			w.wrong = append(w.wrong, fmt.Sprintf("and %d more", refused.More))
		}
	}
	call := *c
	call.R = c.R.Clone(c.R.Context())
	call.R.Method = http.MethodGet
	call.R.URL = &url.URL{Path: c.Prefix() + workspacePath(s.ID),
		RawQuery: url.Values{"pane": {paneFiles}, "path": {form.Folder}}.Encode()}
	page, err := h.page.workspacePageWith(&call, func(p *Page) { p.wrong = w })
	if err != nil {
		return err
	}
	if page.Status = p.Status; p.Kind == route.KindInvalid {
		page.Status = http.StatusUnprocessableEntity // as other forms answer
	}
	return h.shell.write(&call, page)
}

// downloadLive sends a file of the container. It is a form, because it may start a container.
func (h *fileForms) downloadLive(c *route.Call) error {
	if _, err := h.files.Workspaces.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace")); err != nil {
		return err
	}
	if err := readForm(c); err != nil {
		return err
	}
	name := strings.Trim(strings.TrimSpace(c.R.PostFormValue("path")), "/")
	if name == "" {
		return route.NewProblem(route.KindInvalid, "the path is empty").
			WithHint("name a file or a folder of the container")
	}
	return h.files.DownloadLive(c, name, c.R.PostFormValue("format"))
}
