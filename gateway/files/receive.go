package files

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Limits of the request of an upload.
const (
	formRoom      = 1 << 20 // of headers and fields, in bytes
	maxFields     = 8       // that are not files
	receiveWithin = 10 * time.Minute
	silence       = 30 * time.Second // between two pieces
)

// mostArriving bounds how many uploads are received at once, and mostTaken how many are on the disk of the host. One
// person may have a quarter of them.
const (
	mostArriving = 8
	mostTaken    = 32
)

// bound sets how much is done at once.
func (api *API) bound() {
	api.arriving.Max, api.taken.Max, api.packing.Max = mostArriving, mostTaken, mostPacked
}

// countUpload counts one more upload of a person. release gives it back.
func (api *API) countUpload(who route.Who) (release func(), err error) {
	api.once.Do(api.bound)
	if release, err = api.taken.Acquire(who); err != nil {
		p := route.NewProblem(route.KindLimited, "as many uploads wait for their workspaces as may at once")
		p.RetryAfter = 5
		return nil, p.WithHint("try again when another one has ended")
	}
	return release, nil
}

// arrive counts one more upload of a person that is received. release gives it back.
func (api *API) arrive(who route.Who) (release func(), err error) {
	api.once.Do(api.bound)
	if release, err = api.arriving.Acquire(who); err != nil {
		p := route.NewProblem(route.KindLimited, "as many uploads arrive as may at once")
		p.RetryAfter = 5
		return nil, p.WithHint("try again when another one has ended")
	}
	return release, nil
}

func (api *API) upload(c *route.Call) error {
	done, _, _, err := api.UploadForm(c)
	if err != nil {
		return err
	}
	return c.Reply(done)
}

// Form is the form of an upload without its files.
type Form struct {
	Folder  string
	Replace bool
}

// UploadForm receives the files of a request and puts them into the workspace that its path names. The rights of the
// person are checked before anything is read. Refused files are a [transfer.Refused]. The form is as far as it was
// read, also with an error.
func (api *API) UploadForm(c *route.Call) (done transfer.Uploaded, s workspace.Workspace, form Form, err error) {
	if s, err = api.Workspaces.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace")); err != nil {
		return done, workspace.Workspace{}, form, err
	}
	release, err := api.countUpload(c.Who)
	if err != nil {
		return done, s, form, err
	}
	defer release()
	received, err := api.arrive(c.Who)
	if err != nil {
		return done, s, form, err
	}
	defer received()
	u := api.Mover.Uploads().Begin()
	defer u.Close()
	err = receive(c, u)
	received() // others may arrive while it waits for its workspace
	form = Form{Folder: strings.ToValidUTF8(u.Folder, "\uFFFD"), Replace: u.Replace}
	if err != nil {
		return done, s, form, err
	}
	if done, err = api.Mover.Upload(c.R.Context(), s.Caller, c.Who.Person(gitd.Person{}), u); err != nil {
		return done, s, form, err
	}
	return done, s, form, c.Audit("workspace.upload", s.ID)
}

// receive reads the form of an upload to its end.
func receive(c *route.Call, u *transfer.Upload) (err error) {
	// Deadlines of connections are of the machine's clock.
	body := &patientReader{rc: http.NewResponseController(c.W), end: time.Now().Add(receiveWithin)}
	body.ReadCloser = http.MaxBytesReader(c.W, c.R.Body, transfer.MaxBytes+formRoom)
	c.R.Body = body
	defer func() {
		if err == nil {
			body.lift()
			return
		}
		c.W.Header().Set("Connection", "close") // net/http reads the rest of the body until the last deadline
	}()
	form, err := c.R.MultipartReader()
	if err != nil {
		return route.NewProblem(route.KindInvalid, "the request is no form with files").
			WithHint("send multipart/form-data, as `curl -F files=@NAME` does")
	}
	for parts := 0; ; parts++ {
		part, err := form.NextPart()
		if err == io.EOF { // not one that is wrapped, which is that of a form without an end
			return nil
		}
		if err != nil {
			return body.broken(err)
		}
		if parts >= 2*transfer.MaxFiles+maxFields {
			return route.NewProblem(route.KindTooLarge, "the form has more than %d parts", parts)
		}
		if err := readPart(u, part); err != nil {
			return body.problem(err)
		}
	}
}

// readPart reads one part of the form.
func readPart(u *transfer.Upload, part *multipart.Part) error {
	switch field := part.FormName(); field {
	case "files":
		name := fileName(part)
		if name == "" {
			n, err := io.Copy(io.Discard, part)
			if err != nil || n == 0 {
				return err // a browser sends an empty part if no file is chosen
			}
			return route.NewProblem(route.KindInvalid, "a file has no name").WithHint("`curl -F files=@NAME` sends it")
		}
		return u.Add(name, part)
	case "folder":
		text, err := readField(part)
		u.Folder = trimFolder(text)
		return err
	case "replace":
		text, err := readField(part)
		u.Replace = text != "" && text != "0" && text != "false"
		return err
	default:
		return route.NewProblem(route.KindInvalid, "unknown field %.40q: want files, folder or replace", field)
	}
}

// readField returns the text of a field that is no file.
func readField(part *multipart.Part) (string, error) {
	const most = 2 * transfer.MaxPath
	text, err := io.ReadAll(io.LimitReader(part, most+1))
	if err == nil && len(text) > most {
		err = route.NewProblem(route.KindTooLarge, "the field %s has more than %d bytes", part.FormName(), most)
	}
	return string(text), err
}

// fileName returns the name of a file with its folders, as the form has it. [multipart.Part.FileName] cuts the
// folders. Browsers escape quotation marks.
func fileName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(params["filename"], "%22", `"`)
}

// trimFolder returns a folder as a person typed it, without slashes around it.
func trimFolder(text string) string {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '/') {
		text = text[1:]
	}
	for len(text) > 0 && (text[len(text)-1] == ' ' || text[len(text)-1] == '/') {
		text = text[:len(text)-1]
	}
	if text == "." {
		return ""
	}
	return text
}

// patientReader bounds the silence between two pieces of a body, and the time of the whole. It keeps the error of the
// connection.
type patientReader struct {
	io.ReadCloser
	rc  *http.ResponseController
	end time.Time
	err error
}

func (p *patientReader) Read(b []byte) (int, error) {
	until := time.Now().Add(silence)
	if p.end.Before(until) {
		until = p.end
	}
	_ = p.rc.SetReadDeadline(until) // only a recorder in a test has no deadline
	n, err := p.ReadCloser.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		p.err = err
	}
	return n, err
}

// lift removes the limit of time. A deadline that passes later would look like a caller that hung up.
func (p *patientReader) lift() { _ = p.rc.SetReadDeadline(time.Time{}) }

// problem returns the problem of an error of the form. Errors of this machine's disk stay as they are.
func (p *patientReader) problem(err error) error {
	var tooBig *http.MaxBytesError
	var known *route.Problem
	if errors.As(err, &known) || errors.As(err, &tooBig) || p.err == nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return p.broken(err)
}

// broken returns the problem of a form that has no end, or is none.
func (p *patientReader) broken(err error) error {
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return err
	}
	return &route.Problem{Kind: route.KindInvalid, Detail: "the upload did not arrive as a whole; nothing was changed",
		Hint: "try again; a connection that is slow may send fewer files at once", Cause: err}
}

// slowWriter gives each piece of an answer a limit of time, because its reader may stop reading.
type slowWriter struct {
	w  io.Writer
	rc *http.ResponseController
}

func newSlowWriter(c *route.Call) slowWriter { return slowWriter{c.W, http.NewResponseController(c.W)} }

func (s slowWriter) Write(b []byte) (int, error) {
	// Only a recorder in a test has no deadline. The last one is for the bytes that net/http still holds back. net/http lifts
	// it after the answer.
	_ = s.rc.SetWriteDeadline(time.Now().Add(route.SlowestRead))
	return s.w.Write(b)
}
