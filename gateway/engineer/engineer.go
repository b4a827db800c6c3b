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
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
)

// Engineer takes software tasks and brings them to merged pull requests. Its
// exported fields are its options and may be changed until Open. Methods are safe
// for concurrent use.
//
// A task is a conversation, and one standing run of it is its record: what was
// asked, heard and posted, event by event. What is to be done next follows from
// that journal and from how things stand at GitHub, never from what a delivery
// claims; so deliveries may be lost, doubled and late, and the server killed at
// any moment.
type Engineer struct {
	Executor *executor.Executor
	Git      *gitd.Server
	// GitHub opens pull requests and answers reviews; nil: tasks end when their work
	// does, on their branch.
	GitHub *github.Client
	// Upstream says where a repository of ours is at GitHub, and lets git in to
	// write. False: it is not there, and its tasks end as without GitHub.
	Upstream func(repo string) (gitd.Upstream, github.Name, bool)
	// Slack and Channel: where each task gets a thread; nil or empty: nowhere.
	Slack   *slack.Client
	Channel string
	// Repo and Agent are for tasks that name none.
	Repo, Agent string
	Links       *links.Signer
	// Branch is the pull request's branch, with {task_id} and {caller}; default
	// "ramus/conv-{task_id}".
	Branch string
	Draft  bool
	Labels []string
	// Prompt is the template of an agent's first prompt; empty: [render.DefaultPrompt].
	Prompt string
	// Mention is the word that speaks to ramus in a comment; default "@ramus".
	Mention string
	// Repairs is how often failed checks are repaired before a person has to look;
	// default 3. Below 0: never.
	Repairs int
	// DeleteBranch deletes the branch at GitHub when its pull request was merged.
	DeleteBranch bool
	// Evidence is how pictures of pages get to GitHub; default [EvidenceLinks].
	Evidence Evidence
	// DeleteEvidence deletes the branch with the pictures at GitHub when the pull request was merged:
	// what shows them there goes blank.
	DeleteEvidence bool
	// Web is where GitHub's pages are; default https://github.com.
	Web string
	// Gather is how long comments may go on arriving before they are worked on together;
	// default 2 s.
	Gather time.Duration
	// Every is how often a pull request is looked at when nothing was heard of it; default 10 min.
	Every time.Duration
	// RetryEvery is the first pause before something that failed is tried again;
	// it doubles up to five minutes. Default 2 s.
	RetryEvery time.Duration
	Log        *slog.Logger
	Now        func() time.Time

	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup // jobs, and refreshes of bases
	looking chan struct{}  // bounds how many pull requests are looked at at once
	bearing sync.Mutex     // held while a task that another one asks for is accepted

	mu     sync.Mutex // guards all below
	closed bool
	tasks  map[string]record.Task // by id
	jobs   map[string]*job        // of tasks that have something to do
	bases  map[string]bool        // repositories whose base is being refreshed; true: once more

	delivered recent // ids and digests of deliveries
}

// Submission asks for a task.
type Submission struct {
	Description string `json:"description"`       // what to build or fix
	Context     string `json:"context,omitempty"` // current and wanted behaviour, affected files
	Repo        string `json:"repo,omitempty"`
	Base        string `json:"base,omitempty"`
	Agent       string `json:"agent,omitempty"`
	// Key makes it idempotent: a second submission by the same person with the
	// same key is the first one.
	Key   string      `json:"key,omitempty"`
	Asker gitd.Person `json:"asker,omitzero"`
	// Parent is the task whose agent asks for this one.
	Parent string `json:"parent,omitempty"`
	// permit decides on the task before it is recorded; nil permits everything.
	permit func(record.Task) error
}

// maxTaskFamily limits how many tasks may be at work for all of one first task.
const maxTaskFamily = 10

// standingRun is the id of the run that is a task's record.
const standingRun = "task"

// TaskFilter narrows a listing; zero fields do not.
type TaskFilter struct {
	Repo   string
	Status record.State
	Active bool // only what is neither complete nor failed
	Max    int  // default 100
	// Keep leaves out the tasks for which it is false; nil keeps all.
	Keep func(record.Task) bool
}

func (f TaskFilter) fits(t record.Task) bool {
	return (f.Keep == nil || f.Keep(t)) && (f.Repo == "" || t.Repo == f.Repo) && (f.Status == "" || t.Status == f.Status) && (!f.Active || !t.Ended())
}

// Open takes up what an earlier process left.
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
		// One that failed may have been merged, or reopened, while nobody listened.
		lately := t.PRNumber != 0 && e.Now().Sub(t.UpdatedAt) < 30*24*time.Hour
		if !t.Ended() || t.Unposted > 0 || t.Status == record.StateFailed && lately {
			_, _ = e.wake(t.ID, true) // it is open
		}
	}
	return nil
}

func (e *Engineer) fill() {
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Branch == "" {
		e.Branch = "ramus/conv-{task_id}"
	}
	if e.Mention == "" {
		e.Mention = "@ramus"
	}
	if e.Repairs == 0 {
		e.Repairs = 3
	}
	if e.Evidence == "" {
		e.Evidence = EvidenceLinks
	}
	if e.Web == "" {
		e.Web = "https://github.com"
	}
	if e.Gather <= 0 {
		e.Gather = 2 * time.Second
	}
	if e.Every <= 0 {
		e.Every = 10 * time.Minute
	}
	if e.RetryEvery <= 0 {
		e.RetryEvery = 2 * time.Second
	}
}

// Close stops working for tasks and waits; the next Open goes on.
func (e *Engineer) Close() error {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	if closed || e.stop == nil {
		return nil
	}
	e.stop()
	e.wg.Wait()
	return nil
}

// readTask reads the record that a standing run holds; what the run itself says comes first.
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

// newTaskID is random, or follows from a key.
func newTaskID(by gitd.Person, key string) string {
	var b [8]byte
	if key == "" {
		_, _ = rand.Read(b[:]) // it never fails
	} else {
		sum := sha256.Sum256([]byte(by.Email + "\x00" + by.Name + "\x00" + key))
		copy(b[:], sum[:])
	}
	return hex.EncodeToString(b[:])
}

// invalid is an error of whoever asks.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w task: %s", record.ErrInvalid, fmt.Sprintf(format, args...))
}

// Submit accepts a task. It is durable when Submit returns.
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
		return t, nil // heard before
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
		e.bearing.Lock() // many who ask at once are counted one after another
		defer e.bearing.Unlock()
	}
	if err := e.mayBear(s.Parent); err != nil {
		return record.Task{}, err
	}
	t := record.Task{ID: id, Description: s.Description, Context: s.Context, Status: record.StateSubmitted, AgentID: agent, WorktreePath: executor.WorkDir,
		Repo: repo, Base: base, Asker: s.Asker, Parent: s.Parent, CreatedAt: e.Now().UTC()}
	t.UpdatedAt = t.CreatedAt
	t.Branch = strings.NewReplacer("{task_id}", id, "{caller}", t.Caller().Slug()).Replace(e.Branch)
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
	run, _, err := e.Executor.Stand(ctx, record.Request{Key: standingRun, Caller: t.Caller(), Repo: repo, Base: base, Asker: s.Asker}, rec)
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

// workplace is the repository and base of a submission.
func (e *Engineer) workplace(ctx context.Context, s Submission) (repo, base string, err error) {
	repo = cmp.Or(s.Repo, e.Repo)
	if repo == "" {
		all, err := e.Git.Repos(ctx)
		if err != nil {
			return "", "", err
		}
		names := slices.Collect(maps.Keys(e.Executor.Upstreams)) // some may never have been fetched
		for _, r := range all {
			if r.Name() != lookup.InboxRepo {
				names = append(names, r.Name())
			}
		}
		slices.Sort(names)
		if names = slices.Compact(names); len(names) != 1 {
			return "", "", invalid("it names no repository; there are %s", strings.Join(names, ", "))
		}
		repo = names[0]
	}
	r, err := e.Executor.Bases().OpenRepo(ctx, repo)
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

// agent is the agent of a submission.
func (e *Engineer) agent(asked string) (string, error) {
	names := e.Executor.AgentNames()
	name := cmp.Or(asked, e.Agent)
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

// mayBear tells whether a task may ask for one more.
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

// descends tells whether a task comes of another. Called under mu.
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

// Task finds a task by its id. There is none: [record.ErrNotFound].
func (e *Engineer) Task(_ context.Context, id string) (record.Task, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t, ok := e.tasks[strings.TrimPrefix(id, "conv:")]; ok {
		return t, nil
	}
	return record.Task{}, fmt.Errorf("task %.100q: %w; `ramus task list` shows them", id, record.ErrNotFound)
}

// Tasks lists tasks, newest first.
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

// Retry takes a failed task up again where it stands.
func (e *Engineer) Retry(ctx context.Context, id string, by gitd.Person) (record.Task, error) {
	return e.command(ctx, id, "retry", func(ctx context.Context, j *job) error { return j.retry(ctx, by) })
}

// Cancel ends a task: what runs is stopped and the container removed. Its branch
// here is kept unless drop is set; the pull request stays as it is.
func (e *Engineer) Cancel(ctx context.Context, id string, drop bool, by gitd.Person) (record.Task, error) {
	return e.command(ctx, id, "cancel", func(ctx context.Context, j *job) error { return j.cancel(ctx, drop, by) })
}

// Say gives a task something more to do, as a comment on its pull request would.
// A key that was said before is said once.
func (e *Engineer) Say(ctx context.Context, id, key, text string, by gitd.Person) (record.Task, error) {
	return e.command(ctx, id, "speak to", func(ctx context.Context, j *job) error { return j.say(ctx, key, text, by) })
}

// Progress says in a task's thread what its agent is doing. The thread hears of
// that once a minute at most: told is false when it was not said.
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

// command does something to a task's record and wakes whoever works at it.
func (e *Engineer) command(ctx context.Context, id, what string, f func(context.Context, *job) error) (record.Task, error) {
	t, err := e.Task(ctx, id)
	if err == nil {
		var j *job
		if j, err = e.wake(t.ID, false); err == nil {
			if err = f(ctx, j); err == nil {
				var now *job
				if now, err = e.wake(t.ID, false); err == nil && now != j { // the first one left meanwhile
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

// errClosing: the server is shutting down.
var errClosing = record.ErrClosed

// wake finds the job of a task, or makes it. look: GitHub may have news.
func (e *Engineer) wake(id string, look bool) (*job, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosing // the next Open finds it
	}
	j := e.jobs[id]
	if j == nil {
		j = newJob(e, e.tasks[id])
		e.jobs[id] = j
		e.wg.Go(j.own)
	}
	if look {
		j.news.Store(true)
	}
	j.awake()
	return j, nil
}

// leave forgets a job that has nothing to do, unless it was woken meanwhile.
func (e *Engineer) leave(j *job) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(j.wakes) > 0 && !e.closed {
		return false
	}
	delete(e.jobs, j.id)
	return true
}

// keep shows a task's record as it is now.
func (e *Engineer) keep(t record.Task) {
	e.mu.Lock()
	e.tasks[t.ID] = t
	e.mu.Unlock()
}

// Deliver takes what a webhook said. It is durable when it returns: every pull
// request is looked at anew when the server starts, so that nothing is lost
// that GitHub still knows.
// What was delivered before, by its id or its content, is nothing new.
func (e *Engineer) Deliver(_ context.Context, d github.Delivery) error {
	e.mu.Lock()
	known := e.delivered.has(d.ID) || e.delivered.has(d.Digest)
	e.mu.Unlock()
	if known {
		return nil
	}
	if d.Push != nil && !d.Push.Deleted {
		e.pushed(d)
	}
	for _, id := range e.concerned(d) {
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

// maxDelivered is how many ids and digests of deliveries are remembered. What is
// forgotten and comes again costs a look at a pull request, and no more.
const maxDelivered = 4096

// recent remembers the latest of many names. The zero value remembers none.
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

// concerned lists the tasks whose pull requests a delivery may be about.
func (e *Engineer) concerned(d github.Delivery) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []string
	for id, t := range e.tasks {
		// What failed may be merged by a person, or reopened; nothing else brings it back.
		if t.Ended() && (t.Status == record.StateComplete || d.Event != "pull_request" || d.Action != "reopened" && d.Action != "closed") {
			continue
		}
		if _, name, ok := e.upstream(t.Repo); !ok || !name.Is(d.Repo) {
			continue
		}
		switch {
		case d.Number != 0 && d.Number == t.PRNumber,
			d.Check != nil && (d.Check.Branch == t.Branch || slices.Contains(d.Check.Pulls, t.PRNumber)),
			d.Push != nil && d.Push.Ref == "refs/heads/"+t.Branch:
			ids = append(ids, id)
		}
	}
	return ids
}

// upstream is where a repository is at GitHub.
func (e *Engineer) upstream(repo string) (gitd.Upstream, github.Name, bool) {
	if e.GitHub == nil || e.Upstream == nil {
		return gitd.Upstream{}, github.Name{}, false
	}
	return e.Upstream(repo)
}

// pushed has the base follow upstream, in the background; a push that comes
// while it does is one more round.
func (e *Engineer) pushed(d github.Delivery) {
	repos, err := e.Git.Repos(e.ctx)
	if err != nil {
		e.Log.Error("cannot list repositories", "err", err)
		return
	}
	for _, r := range repos {
		up, name, ok := e.upstream(r.Name())
		if !ok || !name.Is(d.Repo) {
			continue
		}
		base := up.Branch // where it goes by another name there
		if base == "" {
			if base, err = r.Base(e.ctx); err != nil {
				e.Log.Error("cannot tell the base of a repository that was pushed to", "repo", r.Name(), "err", err)
				continue
			}
		}
		if d.Push.Ref != "refs/heads/"+base {
			continue
		}
		e.mu.Lock()
		_, busy := e.bases[r.Name()]
		e.bases[r.Name()] = busy
		if !busy && !e.closed {
			e.wg.Go(func() { e.refresh(r.Name()) })
		}
		e.mu.Unlock()
	}
}

func (e *Engineer) refresh(repo string) {
	for {
		done, err := e.Executor.Bases().Refresh(e.ctx, upstream.Deploy{Repo: repo}, nil)
		if err != nil && e.ctx.Err() == nil {
			e.Log.Warn("cannot refresh a base that was pushed to", "repo", repo, "err", err)
		}
		if err == nil {
			if err := e.Executor.Bases().WarmLater(e.ctx, repo, done.Commit); err != nil && e.ctx.Err() == nil {
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

// errEnded: a task takes nothing more.
var errEnded = fmt.Errorf("%w: it has ended", record.ErrConflict)

// isConflict tells whether an error says that somebody else was faster.
func isConflict(err error) bool {
	return errors.Is(err, record.ErrConflict) || errors.Is(err, gitd.ErrConflict)
}

// TaskInThread returns the task that a thread is about.
func (e *Engineer) TaskInThread(channel, thread string) (record.Task, bool) {
	if channel != e.Channel || thread == "" {
		return record.Task{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tasks {
		if t.SlackThreadTS == thread {
			return t, true
		}
	}
	return record.Task{}, false
}
