package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// reposData is the data of the list of repositories.
type reposData struct {
	Rows      []repoRow
	Imports   []importRow
	MayImport bool
	// Name and Source are the form as it was filled in, and Wrong has its mistakes by field.
	Name, Source string
	Wrong        map[string]string
}

// importPages serves the list of repositories, with the form that imports one.
type importPages struct {
	shell   *shell
	servers *servers
	git     *gitd.Server
	imports *imports
}

func (h *importPages) register(t *table) {
	t.page("/repos", "The repositories, and imports in progress", h.repoList)
	t.form("/repos", "Import or create a repository, by the form of the list", h.importRepo)
}

func (h *importPages) repoList(c *route.Call) (*Page, error) { return h.reposWith(c, "", "", nil) }

func (h *importPages) reposWith(c *route.Call, name, source string, wrong map[string]string) (*Page, error) {
	ctx := c.R.Context()
	rows, err := h.servers.listRepos(ctx, c.Who)
	if err != nil {
		return nil, err
	}
	d := &reposData{Rows: rows, MayImport: c.Who.Admin(), Name: name, Source: source, Wrong: wrong}
	if d.MayImport {
		d.Imports = h.imports.list()
	}
	p := &Page{Title: "Repositories", Nav: "repos", Template: "repos", Data: d, Topics: []string{live.TopicMe}, Refresh: 30}
	if len(wrong) > 0 {
		p.Status = status(true)
	}
	if slices.ContainsFunc(d.Imports, func(i importRow) bool { return !i.Ended }) {
		p.Beat, p.Refresh = time.Second, 2
	}
	return p, nil
}

// importRepo begins an import, or creates an empty repository.
func (h *importPages) importRepo(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if !c.Who.Admin() {
		return route.NewProblem(route.KindDenied, "only administrators import repositories")
	}
	name, source := formText(c, "name", 200), formText(c, "source", 2000)
	wrong := map[string]string{}
	if name == "" {
		name = nameOf(source)
	}
	if name == "" {
		wrong["name"] = "Give the repository a name."
	} else if _, err := h.git.Repo(name); err == nil {
		wrong["name"] = "There is a repository of this name."
	} else if !errors.Is(err, gitd.ErrNotFound) && !errors.Is(err, gitd.ErrNoRepository) {
		wrong["name"] = sentence(render.ClipClean(err.Error(), 300))
	}
	if len(wrong) == 0 {
		err := h.imports.beginImport(c.R.Context(), name, source)
		if err == nil {
			if err := c.Audit("repo.import", name); err != nil {
				return err
			}
			return see(c, "/repos")
		}
		text, ok := fieldProblem(err, c.Who)
		if !ok {
			return err
		}
		wrong["source"] = text
	}
	p, err := h.reposWith(c, name, source, wrong)
	if err != nil {
		return err
	}
	return h.shell.write(c, p)
}

// nameOf returns the name that git gives a clone of a source.
func nameOf(source string) string {
	source = strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(source, "/"), ".git"), "/")
	if i := strings.LastIndexAny(source, "/:"); i >= 0 {
		source = source[i+1:]
	}
	return strings.ToLower(source)
}

// imports are the imports that are in progress, and those that ended a short while ago.
type imports struct {
	executor *executor.Executor
	git      *gitd.Server
	live     *live.API // nil means that pages are not kept up to date
	log      *slog.Logger
	now      func() time.Time

	mu      sync.Mutex // guards all below
	rows    []*importing
	stopped bool
	ends    []context.CancelFunc
	work    sync.WaitGroup
}

// importing is one import.
type importing struct {
	mu                sync.Mutex // guards all below
	name, text, wrong string
	began, ended      time.Time
}

// importRow is an import as a page shows it.
type importRow struct {
	Name, Text, Wrong string
	Began             time.Time
	Ended             bool
}

// Limits of imports.
const (
	maxImports  = 4
	importShown = 10 * time.Minute // after its end
	importTime  = 2 * time.Hour
)

// Write takes the progress that git prints. The last line is shown.
func (i *importing) Write(b []byte) (int, error) {
	lines := strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' || r == '\r' })
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(lines) > 0 {
		i.text = render.ClipClean(lines[len(lines)-1], 200)
	}
	return len(b), nil
}

func (m *imports) list() []importRow {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []importRow
	for _, i := range m.rows {
		i.mu.Lock()
		if i.ended.IsZero() || i.wrong != "" {
			list = append(list, importRow{i.name, i.text, i.wrong, i.began, !i.ended.IsZero()})
		}
		i.mu.Unlock()
	}
	return list
}

// stop ends all imports.
func (m *imports) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, end := range m.ends {
		end()
	}
}

// start begins an import. run does the work.
func (m *imports) start(name string, run func(ctx context.Context, progress io.Writer) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	works := 0
	m.rows = slices.DeleteFunc(m.rows, func(i *importing) bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.ended.IsZero() {
			works++
		}
		return !i.ended.IsZero() && (m.now().Sub(i.ended) > importShown || i.name == name)
	})
	if m.stopped || works >= maxImports {
		return route.NewProblem(route.KindUnavailable, "%d repositories are being imported already",
			works).WithHint("wait until one is done")
	}
	ctx, cancel := context.WithTimeout(context.Background(), importTime)
	i := &importing{name: name, began: m.now(), text: "begins"}
	m.rows, m.ends = append(m.rows, i), append(m.ends, cancel)
	m.work.Go(func() {
		defer cancel()
		err := run(ctx, i)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.ended = m.now()
		if err != nil {
			i.wrong = render.ClipClean(err.Error(), 1000)
		}
	})
	return nil
}

func (m *imports) beginImport(ctx context.Context, name, source string) error {
	if source == "" {
		_, err := m.git.Create(ctx, name)
		return err
	}
	return m.start(name, func(ctx context.Context, progress io.Writer) error {
		r, err := m.git.Import(ctx, name, source, progress)
		if m.live != nil {
			defer m.live.Hub.Wake(live.TopicMe)
		}
		if err != nil {
			return err
		}
		base, err := r.Base(ctx)
		if err != nil {
			return err
		}
		head, err := r.Resolve(ctx, "refs/heads/"+base)
		if err != nil {
			return nil // an empty repository
		}
		if err := m.executor.Bases.WarmLater(ctx, name, head); err != nil {
			m.log.Warn("cannot have the dependencies of a base fetched", "repo", name, "err", err)
		}
		return nil
	})
}
