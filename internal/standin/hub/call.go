package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/standin/githost"
)

// maxBody bounds a request to the API.
const maxBody = 4 << 20

// Object is an object of JSON.
type Object map[string]any

// Call is a request to the API by a user. The hub is locked while its handler runs.
type Call struct {
	*Hub
	R    *http.Request
	By   *User
	Out  http.Header
	body []byte
}

// Refusal is an answer that is no success.
type Refusal struct {
	Status  int
	Message string
}

func (r *Refusal) Error() string { return strconv.Itoa(r.Status) + " " + r.Message }

// Refuse returns a refusal.
func Refuse(status int, message string) error { return &Refusal{status, message} }

// Handler answers a request. The answer is JSON, nothing if it is nil, or the error, which is a [Refusal].
type Handler func(*Call) (status int, answer any, err error)

// Route adds a route, such as "GET /api/v1/user".
func (h *Hub) Route(pattern string, f Handler) {
	h.Mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		h.work.Add(1)
		defer h.work.Done()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		h.mu.Lock()
		defer h.mu.Unlock()
		c := &Call{Hub: h, R: r, Out: w.Header(), body: body, By: h.byToken(h.Form.Token(r))}
		var status int
		var answer any
		switch {
		case err != nil:
			err = Refuse(http.StatusRequestEntityTooLarge, "the request is too large")
		case c.By == nil:
			err = Refuse(http.StatusUnauthorized, "Unauthorized")
		default:
			for _, u := range h.users {
				if strings.Contains(r.URL.String(), u.Token) {
					h.complain("%s %s has a token", r.Method, r.URL.Path)
				}
			}
			status, answer, err = f(c)
		}
		var refused *Refusal
		if errors.As(err, &refused) {
			status, answer = refused.Status, h.Form.Refusal(refused.Status, refused.Message)
		} else if err != nil {
			status, answer = http.StatusInternalServerError, h.Form.Refusal(http.StatusInternalServerError, err.Error())
			h.complain("%s %s: %v", r.Method, r.URL.Path, err)
		}
		if answer == nil {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(encode(answer))
	})
}

// other answers requests without a route. Those of git are git's.
func (h *Hub) other(w http.ResponseWriter, r *http.Request) {
	if service, name, ok := githost.Service(r); ok {
		h.work.Add(1)
		defer h.work.Done()
		h.git(w, r, service, name)
		return
	}
	h.mu.Lock()
	h.complain("there is no route %s %s", r.Method, r.URL.EscapedPath())
	h.mu.Unlock()
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// Read decodes the body. Unknown members are a complaint.
func (c *Call) Read(into any) error {
	d := json.NewDecoder(bytes.NewReader(c.body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err != nil && strings.Contains(err.Error(), "unknown field") {
		c.complain("%s %s: %v", c.R.Method, c.R.URL.Path, err)
		err = json.Unmarshal(c.body, into)
	}
	if err != nil {
		return Refuse(http.StatusBadRequest, err.Error())
	}
	return nil
}

// Number returns a number in the path. Returns 0 if it is none.
func (c *Call) Number(name string) int {
	n, _ := strconv.Atoi(c.R.PathValue(name))
	return n
}

// Find returns a repository that the user may see, and may write to if need is Writer.
func (c *Call) Find(owner, name string, need Level) (*Repo, error) {
	for _, r := range c.repos {
		if strings.EqualFold(r.Owner, owner) && strings.EqualFold(r.Name, name) && c.By.Level >= Reader {
			if c.By.Level < need {
				return nil, Refuse(http.StatusForbidden, "Forbidden")
			}
			return r, nil
		}
	}
	return nil, Refuse(http.StatusNotFound, "Not Found")
}

// Page returns a page of a list. size and page are the names of the parameters.
func Page[T any](c *Call, all []T, size string) []T {
	n, _ := strconv.Atoi(c.R.URL.Query().Get(size))
	if n <= 0 || n > 100 {
		n = 30
	}
	page, _ := strconv.Atoi(c.R.URL.Query().Get("page"))
	from := min(max(page-1, 0)*n, len(all))
	to := min(from+n, len(all))
	c.Out.Set("X-Total-Count", strconv.Itoa(len(all)))
	if size == "per_page" { // GitLab
		next := ""
		if to < len(all) {
			next = strconv.Itoa(max(page, 1) + 1)
		}
		c.Out.Set("X-Next-Page", next)
	}
	return all[from:to]
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types are ours
	}
	return b
}
