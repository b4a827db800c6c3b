package engineer

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gateway/ticket"
	"github.com/ramus-dev/ramus/gitd"
)

// Engineer takes software tasks and brings them to merged pull requests. The exported fields are options and may be
// changed until Open is called. Methods are safe for concurrent use.
//
// A task is a conversation. The record of a task is one standing run of the conversation. The journal of that run
// holds the request, all feedback and all messages, event by event. The next step of a task follows from that journal
// and from the state at the forge, never from the content of a delivery. Therefore deliveries may be lost, repeated or
// late, and the server may be killed at any moment.
type Engineer struct {
	Executor *executor.Executor
	Git      *gitd.Server
	// Upstream returns the repository at a forge of a local repository, and the access with which git may write to it.
	// The forge opens pull requests and answers reviews. If Upstream is nil or returns false, the repository is at no
	// forge, and its tasks end when their work does, on the branch of the task.
	Upstream func(repo string) (gitd.Upstream, forge.Repo, bool)
	// Personal returns a forge with the access of a person, see [record.Merge.ByID], so that the pull requests that this
	// person asks for are in the person's name. If Personal is nil or returns false, ramus opens them.
	Personal func(ctx context.Context, at forge.Forge, person string) (forge.Forge, bool)
	// Trackers get the results of tasks that their issues started, by name.
	Trackers map[string]ticket.Tracker
	// Lines has the comments on lines of the work of tasks, which are those of their pull requests too. Nil means that there are none.
	Lines Lines
	// Slack has the threads of tasks. If it is nil, tasks have no threads.
	Slack *slack.Client
	// PostChannels are the ids of the channels in which agents may post.
	PostChannels []string
	Links        *links.Signer
	// Settings are the settings until the first [Engineer.Apply].
	Settings Settings
	// RetryEvery is the first pause before a failed operation is repeated. Each further pause is twice as long, up to
	// five minutes. The default is 2 s.
	RetryEvery time.Duration
	Log        *slog.Logger
	Now        func() time.Time

	applied atomic.Pointer[Settings] // nil until Open
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup // jobs and refreshes of bases
	looking chan struct{}  // limits how many pull requests are read at the same time
	bearing sync.Mutex     // held while a task with a parent is accepted

	mu     sync.Mutex // guards all fields below
	closed bool
	tasks  map[string]record.Task // by id
	jobs   map[string]*job        // jobs by task id, of tasks that have something to do
	bases  map[string]bool        // repositories whose base is being refreshed; true if one more refresh is needed

	opened    atomic.Bool // Open has returned
	delivered recent      // ids and digests of deliveries
}

// Lines has the comments on lines of the work of callers.
type Lines interface {
	// Hear adds the comments of a pull request to the threads of a caller, and notes those of its remarks that are among them. own
	// reports whether a comment is that of a remark by its id.
	Hear(ctx context.Context, repo *gitd.Repo, c record.Caller, pull int, comments []forge.Comment, own func(c forge.Comment, remark string) bool) error
	// Unposted returns the remarks that a pull request with a commit as its head lacks, the oldest first.
	Unposted(ctx context.Context, repo *gitd.Repo, c record.Caller, base string, head gitd.Hash) ([]forge.Remark, error)
	// Settle makes the threads of a pull request resolved at both places, as they were resolved or opened at one of them since the last call.
	Settle(ctx context.Context, repo *gitd.Repo, c record.Caller, pull int, at forge.Repo) error
	// First begins the first review of a pull request, once, if its base wants one.
	First(ctx context.Context, repo *gitd.Repo, c record.Caller, base string, pull int, head gitd.Hash) error
}

// Submission is a request for a task.
type Submission struct {
	Description string `json:"description"`       // the feature to build or the fault to fix
	Context     string `json:"context,omitempty"` // current and wanted behaviour, affected files
	Repo        string `json:"repo,omitempty"`
	Base        string `json:"base,omitempty"`
	Agent       string `json:"agent,omitempty"`
	// Key makes the submission idempotent. A second submission by the same person with the same key returns the task
	// of the first one.
	Key   string      `json:"key,omitempty"`
	Asker gitd.Person `json:"asker,omitzero"`
	// Parent is the id of the task whose agent submits this one.
	Parent string `json:"parent,omitempty"`
	// Ticket is the issue that started the task. Its zero value is none.
	Ticket record.Ticket `json:"-"`
	// permit checks the task before it is recorded. If it is nil, every task is permitted.
	permit func(record.Task) error
}

// maxTaskFamily limits how many descendants of one root task may be at work at the same time.
const maxTaskFamily = 10

// defaultBranch is the default of Settings.Branch.
const defaultBranch = "ramus/conv-{task_id}"

// mergedLately is the age up to which a merge has its base refreshed at the start. The next work asks for later ones.
const mergedLately = time.Hour

// standingRun is the id of the run that is the record of a task.
const standingRun = "task"

// TaskFilter selects tasks of a listing. Fields that are zero select all.
type TaskFilter struct {
	Repo   string
	Status record.State
	Active bool // only tasks that are neither complete nor failed
	Max    int  // the default is 100
	// Keep excludes the tasks for which it returns false. If it is nil, no task is excluded.
	Keep func(record.Task) bool `json:"-"`
}

func (f TaskFilter) fits(t record.Task) bool {
	return (f.Keep == nil || f.Keep(t)) && (f.Repo == "" || t.Repo == f.Repo) &&
		(f.Status == "" || t.Status == f.Status) && (!f.Active || !t.Ended())
}

// Open continues the tasks that an earlier process left.
func (e *Engineer) Open(ctx context.Context) error {
	e.fill()
	e.ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	e.looking = make(chan struct{}, 8)
	e.tasks, e.jobs, e.bases = make(map[string]record.Task), make(map[string]*job), make(map[string]bool)
	for _, run := range e.Executor.Standing() {
		t, err := readTask(run)
		if err != nil {
			e.Log.Error("cannot read the record of a task", "run", run.Name(), "err", err)
			continue
		}
		e.tasks[t.ID] = t
		// The pull request of a failed task may have been merged or reopened while the server was down.
		lately := t.PRNumber != 0 && e.Now().Sub(t.UpdatedAt) < 30*24*time.Hour
		if !t.Ended() || t.Unposted > 0 || t.Status == record.StateFailed && lately {
			_, _ = e.wake(t.ID, true) // it cannot fail, because e is open
		}
		// The process may have ended after the task and before the base followed the merge.
		if t.Status == record.StateComplete && t.PRNumber != 0 && e.Now().Sub(t.UpdatedAt) < mergedLately {
			e.refreshLater(t.Repo)
		}
	}
	e.opened.Store(true)
	return nil
}

func (e *Engineer) fill() {
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.RetryEvery <= 0 {
		e.RetryEvery = 2 * time.Second
	}
	e.Apply(*e.settings())
}

// Close stops all jobs and waits for them. The next Open continues the tasks.
func (e *Engineer) Close() error {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	e.opened.Store(false)
	if closed || e.stop == nil {
		return nil
	}
	e.stop()
	e.wg.Wait()
	return nil
}

// readTask returns the task that the record of a standing run holds. The state, error, name and creation time are
// those of the run.
func readTask(run record.Run) (record.Task, error) {
	var t record.Task
	if err := json.Unmarshal(run.Record, &t); err != nil {
		return t, fmt.Errorf("cannot read the record of %s: %w", run.Name(), err)
	}
	t.Status, t.Error, t.Run, t.CreatedAt = run.State, run.Error, run.Name(), run.CreatedAt
	if t.UpdatedAt.IsZero() {
		t.UpdatedAt = run.CreatedAt
	}
	return t, nil
}

// newTaskID returns a random id. If key is not empty, the id follows from by and key instead.
func newTaskID(by gitd.Person, key string) string {
	var b [8]byte
	if key == "" {
		_, _ = rand.Read(b[:]) // Read never fails
	} else {
		sum := sha256.Sum256([]byte(by.Email + "\x00" + by.Name + "\x00" + key))
		copy(b[:], sum[:])
	}
	return hex.EncodeToString(b[:])
}

// invalid returns an error of the submission or request.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w task: %s", record.ErrInvalid, fmt.Sprintf(format, args...))
}

// Submit accepts a task. The task is durable when Submit returns.
func (e *Engineer) Submit(ctx context.Context, s Submission) (record.Task, error) {
	t, err := e.submit(ctx, s)
	if err != nil {
		return t, fmt.Errorf("cannot submit a task: %w", err)
	}
	return t, nil
}

func (e *Engineer) submit(ctx context.Context, s Submission) (record.Task, error) {
	switch {
	case strings.TrimSpace(s.Description) == "":
		return record.Task{}, invalid("it has no description; say what to build or fix")
	case len(s.Description)+len(s.Context) > catalog.MaxTaskText:
		return record.Task{}, invalid("its description has %d bytes and its context %d, at most %d together; put the details into a file of the repository, and say where",
			len(s.Description), len(s.Context), catalog.MaxTaskText)
	case len(s.Key) > 200:
		return record.Task{}, invalid("its key has more than 200 bytes")
	case lookup.IsCallerBranch(s.Base):
		return record.Task{}, invalid("%s is a branch that callers work on, and no base", s.Base)
	}
	id := newTaskID(s.Asker, s.Key)
	if t, err := e.Task(ctx, id); err == nil {
		return t, nil // the task was submitted before
	}
	repo, base, err := e.workplace(ctx, s)
	if err != nil {
		return record.Task{}, err
	}
	agent, err := e.agent(s.Agent)
	if err != nil {
		return record.Task{}, err
	}
	if s.Parent != "" {
		e.bearing.Lock() // so that concurrent submissions are counted one after another
		defer e.bearing.Unlock()
	}
	if err := e.mayBear(s.Parent); err != nil {
		return record.Task{}, err
	}
	t := record.Task{ID: id, Description: s.Description, Context: s.Context, Status: record.StateSubmitted,
		AgentID: agent, WorktreePath: executor.WorkDir,
		Repo: repo, Base: base, Asker: s.Asker, Parent: s.Parent, Ticket: s.Ticket, CreatedAt: e.Now().UTC()}
	t.UpdatedAt = t.CreatedAt
	t.Branch = strings.NewReplacer("{task_id}", id, "{caller}", t.Caller().Slug()).Replace(e.settings().Branch)
	if err := gitd.CheckRef("refs/heads/" + t.Branch); err != nil {
		return record.Task{}, invalid("engineer.branch makes %q of it, which is no name of a branch", t.Branch)
	}
	if s.permit != nil {
		if err := s.permit(t); err != nil {
			return record.Task{}, err
		}
	}
	rec, err := json.Marshal(t)
	if err != nil {
		return record.Task{}, err
	}
	run, _, err := e.Executor.Stand(ctx,
		record.Request{Key: standingRun, Caller: t.Caller(), Repo: repo, Base: base, Asker: s.Asker}, rec)
	if err != nil {
		return record.Task{}, err
	}
	if t, err = readTask(run); err != nil {
		return t, err
	}
	e.mu.Lock()
	if known, ok := e.tasks[id]; ok {
		t = known
	} else {
		e.tasks[id] = t
	}
	e.mu.Unlock()
	e.wake(id, false)
	return t, nil
}

// workplace returns the repository and base of a submission.
func (e *Engineer) workplace(ctx context.Context, s Submission) (repo, base string, err error) {
	repo = cmp.Or(s.Repo, e.settings().Repo)
	if repo == "" {
		all, err := e.Git.Repos(ctx)
		if err != nil {
			return "", "", err
		}
		names := slices.Collect(maps.Keys(e.Executor.Bases.AllSources())) // some of them may never have been fetched
		for _, r := range all {
			if !lookup.IsOwnRepo(r.Name()) {
				names = append(names, r.Name())
			}
		}
		slices.Sort(names)
		if names = slices.Compact(names); len(names) != 1 {
			return "", "", invalid("it names no repository; there are %s", strings.Join(names, ", "))
		}
		repo = names[0]
	}
	r, err := e.Executor.Bases.OpenRepo(ctx, repo)
	if err != nil {
		return "", "", err
	}
	base = s.Base
	if base == "" {
		if base, err = r.Base(ctx); err != nil {
			return "", "", err
		}
	}
	if _, err := r.Resolve(ctx, "refs/heads/"+base); err != nil {
		return "", "", fmt.Errorf("base %s of %s: %w", base, repo, err)
	}
	return repo, base, nil
}

// agent returns the agent of a submission.
func (e *Engineer) agent(asked string) (string, error) {
	names := e.Executor.AgentNames()
	name := cmp.Or(asked, e.settings().Agent)
	switch {
	case len(names) == 0:
		return "", invalid("no agent is configured here; see `agents` in the configuration")
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", invalid("say which agent is meant: %s; or set engineer.agent", strings.Join(names, ", "))
	case !slices.Contains(names, name):
		return "", invalid("there is no agent %q; known are %s", name, strings.Join(names, ", "))
	}
	return name, nil
}

// mayBear returns an error if the task parent may not submit another task. Returns nil if parent is "".
func (e *Engineer) mayBear(parent string) error {
	if parent == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	root, depth := parent, 1
	for {
		t, ok := e.tasks[root]
		if !ok {
			return fmt.Errorf("task %s: %w", root, record.ErrNotFound)
		}
		if t.Parent == "" {
			break
		}
		root = t.Parent
		depth++
	}
	children, family := 0, 0
	for _, t := range e.tasks {
		if t.Parent == parent {
			children++
		}
		if !t.Ended() && t.ID != root && e.descends(t, root) {
			family++
		}
	}
	switch {
	case depth > catalog.MaxTaskDepth:
		return fmt.Errorf("%w: tasks of tasks of tasks go %d deep and no deeper", record.ErrConflict, catalog.MaxTaskDepth)
	case children >= catalog.MaxTaskChildren:
		return fmt.Errorf("%w: a task may ask for %d others", record.ErrConflict, catalog.MaxTaskChildren)
	case family >= maxTaskFamily:
		return fmt.Errorf("%w: %d tasks of this one are at work already", record.ErrConflict, maxTaskFamily)
	}
	return nil
}

// descends reports whether t is the task of or one of its descendants. The caller holds mu.
func (e *Engineer) descends(t record.Task, of string) bool {
	for range catalog.MaxTaskDepth + 1 {
		if t.ID == of {
			return true
		}
		next, ok := e.tasks[t.Parent]
		if !ok {
			return false
		}
		t = next
	}
	return false
}

// Task returns the task with the given id. Returns [record.ErrNotFound] if there is none.
func (e *Engineer) Task(_ context.Context, id string) (record.Task, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t, ok := e.tasks[strings.TrimPrefix(id, "conv:")]; ok {
		return t, nil
	}
	return record.Task{}, fmt.Errorf("task %.100q: %w; `ramus task list` shows them", id, record.ErrNotFound)
}

// Tasks lists the tasks that fit f, newest first.
func (e *Engineer) Tasks(_ context.Context, f TaskFilter) ([]record.Task, error) {
	if f.Max <= 0 {
		f.Max = 100
	}
	e.mu.Lock()
	list := []record.Task{}
	for _, t := range e.tasks {
		if f.fits(t) {
			list = append(list, t)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(list, func(a, b record.Task) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	return list[:min(len(list), f.Max)], nil
}

// Retry continues a failed task from its current state.
func (e *Engineer) Retry(ctx context.Context, id string, by gitd.Person) (record.Task, error) {
	return e.command(ctx, id, "retry", func(ctx context.Context, j *job) error { return j.retry(ctx, by) })
}

// Cancel ends a task. It stops the running work and removes the container. The local branch is kept unless drop is
// set. The pull request is not changed.
func (e *Engineer) Cancel(ctx context.Context, id string, drop bool, by gitd.Person) (record.Task, error) {
	return e.command(ctx, id, "cancel", func(ctx context.Context, j *job) error { return j.cancel(ctx, drop, by) })
}

// Say gives a task further work, like a comment on its pull request. A second call with the same key has no effect.
func (e *Engineer) Say(ctx context.Context, id, key, text string, by gitd.Person) (record.Task, error) {
	return e.command(ctx, id, "speak to", func(ctx context.Context, j *job) error { return j.sayWords(ctx, key, text, by) })
}

// LinesChanged has the task of a caller look for comments on lines that its pull request lacks.
func (e *Engineer) LinesChanged(c record.Caller) {
	if !e.opened.Load() {
		return
	}
	t, ok := e.inPull(c)
	if !ok {
		return
	}
	if j, err := e.wake(t.ID, false); err == nil {
		j.news.Store(true)
		j.awake()
	}
}

// Progress posts a note about the current work of an agent in the thread of its task. At most one note a minute is
// posted. told is false if the note was not posted.
func (e *Engineer) Progress(ctx context.Context, id, text string) (told bool, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return false, fmt.Errorf("%w text: it is empty", record.ErrInvalid)
	}
	_, err = e.command(ctx, id, "speak for", func(ctx context.Context, j *job) (err error) {
		t, _, err := j.now(ctx)
		if err != nil {
			return err
		}
		if t.Ended() {
			return errEnded
		}
		told, err = j.working(ctx, "agent:"+newTaskID(gitd.Person{}, ""), text, false)
		return err
	})
	return told, err
}

// command calls f with the job of a task and wakes the job after it.
func (e *Engineer) command(ctx context.Context, id, what string, f func(context.Context, *job) error) (record.Task, error) {
	t, err := e.Task(ctx, id)
	if err == nil {
		var j *job
		if j, err = e.wake(t.ID, false); err == nil {
			if err = f(ctx, j); err == nil {
				var now *job
				if now, err = e.wake(t.ID, false); err == nil && now != j { // the first job has left meanwhile
					now.stale.Store(true)
					now.awake()
				}
			}
		}
	}
	if err != nil {
		return t, fmt.Errorf("cannot %s a task: %w", what, err)
	}
	return e.Task(ctx, t.ID)
}

// errClosing is the error of a call while the server is shutting down.
var errClosing = record.ErrClosed

// wake returns the job of a task and wakes it. It starts a job if there is none. look is set if the forge may have
// news.
func (e *Engineer) wake(id string, look bool) (*job, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosing // the next Open starts the job
	}
	j := e.jobs[id]
	if j == nil {
		j = newJob(e, e.tasks[id])
		e.jobs[id] = j
		e.wg.Go(j.takeSteps)
	}
	if look {
		j.news.Store(true)
	}
	j.awake()
	return j, nil
}

// leave removes a job that has nothing to do. Returns false if the job was woken meanwhile.
func (e *Engineer) leave(j *job) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(j.wakes) > 0 && !e.closed {
		return false
	}
	delete(e.jobs, j.id)
	return true
}

// keep makes t the task that Task and Tasks return.
func (e *Engineer) keep(t record.Task) {
	e.mu.Lock()
	e.tasks[t.ID] = t
	e.mu.Unlock()
}

// Deliver handles a webhook delivery. A lost delivery loses nothing that the forge still knows, because every pull
// request is read when the server starts. A delivery whose id or content was delivered before is ignored.
func (e *Engineer) Deliver(_ context.Context, from forge.Forge, d forge.Delivery) error {
	e.mu.Lock()
	known := e.delivered.has(d.ID) || e.delivered.has(d.Digest)
	e.mu.Unlock()
	if known {
		return nil
	}
	if slices.ContainsFunc(d.Pushes, func(p forge.Push) bool { return !p.Deleted }) {
		e.pushed(from, d)
	}
	for _, id := range e.concerned(from, d) {
		if _, err := e.wake(id, true); err != nil {
			return err
		}
	}
	e.mu.Lock()
	e.delivered.add(d.ID)
	e.delivered.add(d.Digest)
	e.mu.Unlock()
	return nil
}

// maxDelivered limits how many ids and digests of deliveries are remembered. A repeated delivery that is forgotten
// only costs one reading of a pull request.
const maxDelivered = 4096

// recent is a set of the latest names that were added. The zero value is empty.
type recent struct {
	names map[string]bool
	order []string // oldest first
}

func (r *recent) has(name string) bool { return name != "" && r.names[name] }

func (r *recent) add(name string) {
	if name == "" || r.names[name] {
		return
	}
	if r.names == nil {
		r.names = make(map[string]bool)
	}
	if len(r.order) == maxDelivered {
		delete(r.names, r.order[0])
		r.order = r.order[1:]
	}
	r.names[name] = true
	r.order = append(r.order, name)
}

// concerned returns the ids of the tasks whose pull requests a delivery may be about.
func (e *Engineer) concerned(from forge.Forge, d forge.Delivery) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []string
	for id, t := range e.tasks {
		// A person may merge or reopen the pull request of a failed task. No other event continues such a task.
		if t.Ended() && (t.Status == record.StateComplete || !d.Turned) {
			continue
		}
		if _, at, ok := e.upstream(t.Repo); !ok || at.Forge != from || !at.Name.Is(d.Repo) {
			continue
		}
		switch {
		case d.Number != 0 && d.Number == t.PRNumber,
			d.Check != nil && (d.Check.Branch == t.Branch || slices.Contains(d.Check.Pulls, t.PRNumber)),
			slices.ContainsFunc(d.Pushes, func(p forge.Push) bool { return p.Ref == "refs/heads/"+t.Branch }):
			ids = append(ids, id)
		}
	}
	return ids
}

// upstream returns the repository at a forge of a local repository. Returns false if there is none.
func (e *Engineer) upstream(repo string) (gitd.Upstream, forge.Repo, bool) {
	if e.Upstream == nil {
		return gitd.Upstream{}, forge.Repo{}, false
	}
	return e.Upstream(repo)
}

// pushed refreshes the base of each repository that a push concerns, in the background. A push during a refresh causes
// one more refresh.
func (e *Engineer) pushed(from forge.Forge, d forge.Delivery) {
	repos, err := e.Git.Repos(e.ctx)
	if err != nil {
		e.Log.Error("cannot list repositories", "err", err)
		return
	}
	for _, r := range repos {
		up, at, ok := e.upstream(r.Name())
		if !ok || at.Forge != from || !at.Name.Is(d.Repo) {
			continue
		}
		base := up.Branch // set if the base has another name at the forge
		if base == "" {
			if base, err = r.Base(e.ctx); err != nil {
				e.Log.Error("cannot tell the base of a repository that was pushed to", "repo", r.Name(), "err", err)
				continue
			}
		}
		if !slices.Contains(d.Pushes, forge.Push{Ref: "refs/heads/" + base}) {
			continue
		}
		e.refreshLater(r.Name())
	}
}

// refreshLater refreshes the base of a repository in the background.
func (e *Engineer) refreshLater(repo string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, busy := e.bases[repo]
	e.bases[repo] = busy
	if !busy && !e.closed {
		e.wg.Go(func() { e.refresh(repo) })
	}
}

func (e *Engineer) refresh(repo string) {
	for {
		done, err := e.Executor.Bases.Refresh(e.ctx, upstream.Deploy{Repo: repo}, nil)
		if err != nil && e.ctx.Err() == nil {
			e.Log.Warn("cannot refresh a base that was pushed to", "repo", repo, "err", err)
		}
		if err == nil {
			if err := e.Executor.Bases.WarmLater(e.ctx, repo, done.Commit); err != nil && e.ctx.Err() == nil {
				e.Log.Warn("cannot have the dependencies of a base fetched", "repo", repo, "err", err)
			}
		}
		e.mu.Lock()
		if e.bases[repo] && !e.closed {
			e.bases[repo] = false
			e.mu.Unlock()
			continue
		}
		delete(e.bases, repo)
		e.mu.Unlock()
		return
	}
}

// errEnded is the error of a change to a task that has ended.
var errEnded = fmt.Errorf("%w: it has ended", record.ErrConflict)

// isConflict reports whether err says that a concurrent change came first.
func isConflict(err error) bool {
	return errors.Is(err, record.ErrConflict) || errors.Is(err, gitd.ErrConflict)
}

// TaskInThread returns the task of a thread. Returns false if the thread belongs to no task.
func (e *Engineer) TaskInThread(channel, thread string) (record.Task, bool) {
	if thread == "" {
		return record.Task{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tasks {
		if t.SlackThreadTS == thread && cmp.Or(t.SlackChannel, e.settings().Channel) == channel {
			return t, true
		}
	}
	return record.Task{}, false
}
