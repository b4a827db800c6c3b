package engineer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// job works on one task. Its goroutine takes one step after another, and each step can be repeated. Two more
// goroutines empty the outbox, one to Slack and one to the forge, so that neither lane waits for the other.
type job struct {
	engineer *Engineer
	id       string
	place    string        // the channel of the task's own thread; empty if it is that of all tasks, or none
	proposed bool          // the task began with a branch, so it has its own thread or none
	wakes    chan struct{} // holds at most one token
	news     atomic.Bool   // the forge may have news
	stale    atomic.Bool   // the journal must be read again

	// Only the job's own goroutine uses the fields of this block.
	looked   time.Time           // when the pull request was read last
	gathered time.Time           // when the first of the waiting items was seen; zero if none is
	writers  map[string]mayWrite // by login
	follow   *follower           // of the current run; nil if there is none
	failures int
	reviewed int // the number of the pull request whose first review has begun

	// starting is held while work is begun, while its end is journalled, and while a task is cancelled or retried.
	// Otherwise work begun during a cancel would recreate the container that the cancel removes, and work stopped by a
	// cancel would end the task a second time. Lock order: starting, then mu.
	starting sync.Mutex

	mu   sync.Mutex // guards all fields below; held while the journal is amended
	read bool       // whether the journal is read
	told time.Time  // when progress was last posted in the thread
	task record.Task
	past history
	mail chan struct{} // closed and replaced when the outbox may have changed
}

type mayWrite struct {
	yes bool
	at  time.Time
}

func newJob(e *Engineer, t record.Task) *job {
	return &job{engineer: e, id: t.ID, place: t.SlackChannel, proposed: !t.For.IsZero(), task: t,
		wakes: make(chan struct{}, 1), writers: make(map[string]mayWrite), mail: make(chan struct{})}
}

// channel returns the channel of the task's thread. Returns "" if the task has none.
func (j *job) channel() string {
	if j.proposed || j.place != "" {
		return j.place
	}
	return j.engineer.settings().Channel
}

func (j *job) awake() {
	select {
	case j.wakes <- struct{}{}:
	default:
	}
}

// takeSteps takes steps until nothing is left to do.
func (j *job) takeSteps() {
	ctx, cancel := context.WithCancel(j.engineer.ctx)
	var lanes sync.WaitGroup
	for _, lane := range []lane{laneSlack, laneForge, laneTicket} {
		lanes.Go(func() { j.deliver(ctx, lane) })
	}
	defer func() {
		cancel()
		lanes.Wait()
		if j.follow != nil {
			<-j.follow.gone
		}
	}()
	for {
		pause, err := j.step(ctx)
		if errors.Is(err, record.ErrFull) {
			// Retrying does not help, because nothing makes room in the record.
			err = j.fail(ctx, record.ReasonBadInput,
				"more was said about it than its record can hold; hand over what is left as a new task")
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			j.failures++
			pause = min(j.engineer.RetryEvery<<min(j.failures-1, 20), maxPause)
			j.engineer.Log.Error("cannot go on with a task; it is tried again", "task", j.id, "pause", pause, "err", err)
		default:
			j.failures = 0
		}
		if err == nil && j.over() && j.engineer.leave(j) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-j.wakes:
		case <-j.ended():
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// over reports whether the task has ended and all its messages are posted.
func (j *job) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.task.Ended() && len(j.past.unposted("")) == 0
}

// load reads the journal if it is not read or stale. The caller holds mu.
func (j *job) load(ctx context.Context) error {
	if j.stale.Swap(false) {
		j.read = false
	}
	if j.read {
		return nil
	}
	run, known := j.engineer.Executor.Find(j.task.Caller(), standingRun)
	if !known {
		return fmt.Errorf("task %s: %w", j.id, record.ErrNotFound)
	}
	t, err := readTask(run)
	if err != nil {
		return err
	}
	var past history
	for e, err := range j.engineer.Executor.Events(ctx, t.Run, 0, false) {
		if err != nil {
			return err
		}
		if err := past.add(e); err != nil {
			return err
		}
	}
	j.task, j.past, j.read = t, past, true
	if past.last == 0 { // the task is new
		var received []record.Event
		if t.For.IsZero() {
			received = append(j.toSlack("received", render.TaskReceived(t)),
				j.toTicket(t, "received", "ramus works on this.", "")...)
		}
		return j.amendLocked(ctx, nil, append(received, record.Event{Type: record.EventPolicy,
			Message: string(gate.RunnerContainer), Reason: "grant",
			Data: encode(catalog.Decision{Policy: gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonGrant,
				Prompt: t.Description}})})...)
	}
	return nil
}

// now returns the current task and history.
func (j *job) now(ctx context.Context) (record.Task, history, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.load(ctx)
	return j.task, j.past.clone(), err
}

// amend journals events and changes the record in one commit.
func (j *job) amend(ctx context.Context, change func(*record.Task), events ...record.Event) error {
	return j.amendIf(ctx, func(record.Task) bool { return true }, change, events...)
}

// amendOpen is like amend but does nothing if the task has ended meanwhile. A cancelled or merged task must not be
// changed back.
func (j *job) amendOpen(ctx context.Context, change func(*record.Task), events ...record.Event) error {
	return j.amendIf(ctx, func(t record.Task) bool { return !t.Ended() }, change, events...)
}

// amendIf is like amend but does nothing if wanted returns false for the current task.
func (j *job) amendIf(ctx context.Context, wanted func(record.Task) bool, change func(*record.Task), events ...record.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for attempt := 1; ; attempt++ {
		err := j.load(ctx)
		if err == nil && !wanted(j.task) {
			return nil
		}
		if err == nil {
			err = j.amendLocked(ctx, change, events...)
		}
		if err == nil || attempt == 3 || !isConflict(err) {
			return err
		}
	}
}

func (j *job) amendLocked(ctx context.Context, change func(*record.Task), events ...record.Event) error {
	t, past := j.task, j.past.clone()
	t.Work = slices.Clone(t.Work)
	if change != nil {
		change(&t)
	}
	for _, e := range events {
		if err := past.add(e); err != nil {
			return err
		}
	}
	t.UpdatedAt, t.Unposted = j.engineer.Now().UTC(), len(past.unposted(""))
	a := executor.Amendment{Events: events, Record: encode(t)}
	if t.Status != j.task.Status || t.Error != j.task.Error {
		a.State, a.Error = t.Status, t.Error
		if t.Status == record.StateFailed {
			a.Reason = past.reason
		}
	}
	run, err := j.engineer.Executor.Amend(ctx, j.task.Run, j.past.last, a)
	if err != nil {
		j.read = false // the journal is read again, because a concurrent change may have come first
		return err
	}
	past.last = j.past.last + int64(len(events))
	if a.State != "" {
		past.last++
	}
	if t, err = readTask(run); err != nil {
		return err
	}
	j.task, j.past = t, past
	j.engineer.keep(t)
	close(j.mail)
	j.mail = make(chan struct{})
	return nil
}

// encode returns the JSON of a value. It panics if v cannot be encoded.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // v has only strings, numbers and lists
	}
	return b
}

// step takes all steps that are possible now. pause is how long there will be nothing to do unless the job is woken.
func (j *job) step(ctx context.Context) (pause time.Duration, err error) {
	for {
		t, past, err := j.now(ctx)
		if err != nil {
			return 0, err
		}
		// A failed task is read too if there is news, because its pull request may have been merged.
		if t.PRNumber != 0 && t.Status != record.StateComplete &&
			(j.news.Swap(false) || !t.Ended() && j.engineer.Now().Sub(j.looked) >= j.engineer.settings().Every) {
			if err := j.look(ctx); err != nil {
				j.news.Store(true)
				return 0, err
			}
			continue
		}
		if t.Ended() {
			return maxPause, j.clear(ctx, t)
		}
		_, _, shared := j.engineer.upstream(t.Repo)
		w, any := past.latest()
		switch {
		case !any && !t.For.IsZero():
			return maxPause, nil // the server was killed before the branch was proposed
		case !any:
			err = j.beginWork(ctx, nil)
		case !w.Ended:
			var over bool
			if over, err = j.attend(ctx, w); !over && err == nil {
				return j.engineer.settings().Every, nil
			}
		case !w.OK: // the task was retried
			err = j.beginWork(ctx, w.Keys)
		case w.Published == "":
			err = j.publish(ctx, w)
		case shared && t.PRNumber == 0:
			return j.engineer.settings().Every, nil // the message that opens the pull request is in the outbox
		default:
			waiting := past.waiting()
			if len(waiting) == 0 {
				j.gathered = time.Time{}
				return j.engineer.settings().Every - j.engineer.Now().Sub(j.looked), nil
			}
			if j.gathered.IsZero() {
				j.gathered = j.engineer.Now()
			}
			if left := j.engineer.settings().Gather - j.engineer.Now().Sub(j.gathered); left > 0 {
				return left, nil
			}
			j.gathered = time.Time{}
			// Items that arrived during the wait belong to the same work.
			if err = j.look(ctx); err == nil {
				err = j.address(ctx)
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// clear stops the follower of a task that has ended and removes its container.
func (j *job) clear(ctx context.Context, t record.Task) error {
	if j.follow != nil {
		j.follow.stop()
		<-j.follow.gone
		j.follow = nil
	}
	if !t.For.IsZero() {
		return nil // people work on the branch too
	}
	if err := j.engineer.Executor.Stop(ctx, t.Caller().String(), j.engineer.Executor.Bot); err != nil &&
		!errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("cannot remove the container: %w", err)
	}
	return nil
}

// address begins work for the waiting items. It leaves failed checks after too many repairs in a row.
func (j *job) address(ctx context.Context) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	waiting := past.waiting()
	if t.Ended() || len(waiting) == 0 {
		return nil
	}
	if t.AgentID == "" {
		return j.leave(ctx, waiting)
	}
	byPeople := slices.ContainsFunc(waiting, func(i item) bool { return i.Check == nil })
	if !byPeople && past.repairs() >= max(j.engineer.settings().Repairs, 0) {
		var events []record.Event
		for _, i := range waiting {
			events = append(events, record.Event{Type: record.EventHeard, Kind: heardLeft, Step: i.Key})
		}
		if past.gaveUp {
			return j.amend(ctx, nil, events...)
		}
		what := failing(waiting) // the name comes from the author of the check, so it is escaped
		rest := fmt.Sprintf(", and was repaired %s already. A person has to look: a comment goes on.", times(past.repairs()))
		events = append(events, j.toForge("left:"+waiting[0].Key,
			message{Kind: mailSay, Text: render.MarkdownText(what, 1000) + rest})...)
		events = append(events, j.toSlack("left:"+waiting[0].Key, render.InlineText(what, 400)+rest)...)
		return j.amend(ctx, nil, events...)
	}
	var keys []string
	for _, i := range waiting {
		keys = append(keys, i.Key)
	}
	return j.beginWork(ctx, keys)
}

// leave reports items in the thread of a task that has no agent to work on them.
func (j *job) leave(ctx context.Context, items []item) error {
	var events []record.Event
	for _, i := range items {
		events = append(events, record.Event{Type: record.EventHeard, Kind: heardLeft, Step: i.Key})
		events = append(events, j.toSlack("heard:"+i.Key, render.TaskHeard(i.By, i.excerpt()))...)
	}
	return j.amend(ctx, nil, events...)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// failing returns a sentence with the names of the checks that failed.
func failing(items []item) string {
	var names []string
	for _, i := range items {
		if i.Check != nil {
			names = append(names, i.Check.Name)
		}
	}
	slices.Sort(names)
	return "The check " + strings.Join(slices.Compact(names), ", ") + " failed"
}

// beginWork journals the beginning of work. The work addresses the items with the given keys, or the task itself if there
// are none.
func (j *job) beginWork(ctx context.Context, keys []string) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	if past.pushed != "" {
		if done, err := j.takeIn(ctx); err != nil || done {
			return err
		}
		if t, past, err = j.now(ctx); err != nil {
			return err
		}
	}
	w := work{N: len(past.works) + 1, Keys: keys, Commits: past.people}
	w.Run = t.Caller().String() + "/" + w.id()
	events := []record.Event{{Type: record.EventWork, Step: w.id(), Kind: workBegun, Data: encode(w)}}
	status := record.StateRunning
	if t.PRNumber != 0 {
		status = record.StateAddressingComments
	}
	if excerpt := past.excerpt(keys); excerpt != "" {
		events = append(events, j.toSlack("addressing:"+w.id(), render.TaskAddressing(excerpt))...)
	}
	return j.amendOpen(ctx, func(t *record.Task) {
		t.Status, t.Error = status, ""
		t.Work = append(t.Work, w.Run)
	}, events...)
}

// prompt returns the prompt of an agent for a piece of work.
func (j *job) prompt(ctx context.Context, t record.Task, past history, w work) (string, error) {
	if len(w.Keys) == 0 {
		files, err := j.conventions(ctx, t)
		if err != nil {
			return "", err
		}
		return render.Prompt(cmp.Or(j.engineer.settings().Prompt, render.DefaultPrompt),
			render.PromptData{Task: t, Conventions: files})
	}
	return render.FeedbackPrompt(t, past.feedback(w)), nil
}

// workTitle returns a one-line description of a piece of work, which is the subject of its commits.
func workTitle(t record.Task, past history, w work) string {
	if len(w.Keys) == 0 {
		return firstOf(t.Description)
	}
	return "Address: " + firstOf(past.excerpt(w.Keys))
}

// conventionFiles are the names of files that describe how to work in a repository. They are searched in the base.
var conventionFiles = []string{"AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "CONTRIBUTING.md"}

func (j *job) conventions(ctx context.Context, t record.Task) (found []string, err error) {
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return nil, err
	}
	for _, name := range conventionFiles {
		in, _, err := repo.OpenFile(ctx, "refs/heads/"+t.Base, name)
		if errors.Is(err, gitd.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		in.Close()
		found = append(found, name)
	}
	return found, nil
}

// attend starts and follows the run of a piece of work. over is true if the run has ended and its end is journalled.
func (j *job) attend(ctx context.Context, w work) (over bool, err error) {
	if j.follow == nil || j.follow.work != w.N {
		if err := j.start(ctx, w); err != nil {
			var refused *refusedWork
			if errors.Is(err, errEnded) {
				return true, nil // the task was cancelled before the work began
			}
			if errors.As(err, &refused) {
				return true, j.fail(ctx, record.ReasonBadInput, refused.Error(), cutShort(w, refused.Error()))
			}
			return false, err
		}
		j.follow = j.watch(ctx, w)
	}
	select {
	case <-j.follow.gone:
	default:
		return false, nil
	}
	run, err := j.follow.run, j.follow.err
	j.follow = nil
	if err != nil {
		return false, err
	}
	return true, j.finished(ctx, w, run)
}

// ended returns a channel that is closed when the current run ends. Returns nil if there is no current run.
func (j *job) ended() <-chan struct{} {
	if j.follow == nil {
		return nil
	}
	return j.follow.gone
}

// refusedWork is the error of a request that the executor will never accept.
type refusedWork struct{ err error }

func (r *refusedWork) Error() string { return r.err.Error() }
func (r *refusedWork) Unwrap() error { return r.err }

// start claims and begins the run of a piece of work. It does nothing if the run was begun before. The policy is
// journalled before the agent starts, because the tools of the agent follow from it.
func (j *job) start(ctx context.Context, w work) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	asked := record.Request{Key: w.id(), Caller: t.Caller(), Repo: t.Repo, Base: t.Base, Asker: t.Asker}
	run, _, err := j.engineer.Executor.Claim(ctx, asked)
	if err != nil {
		return err
	}
	if run.Kind != record.KindRequest || run.Ended() {
		return nil
	}
	if _, known := catalog.ReadDecision(ctx, j.engineer.Executor, run.Name()); !known {
		p := gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonGrant, Prompt: t.Description}
		d := catalog.Decide(p, catalog.Offer{Browser: j.engineer.Executor.Browser != nil, Task: true, Comments: true,
			Channels: j.engineer.PostChannels})
		err := j.engineer.Executor.Note(ctx, run.Name(), record.Event{Type: record.EventPolicy,
			Message: string(d.Runner), Reason: string(d.Reason), Data: encode(d)})
		if err != nil {
			return err
		}
	}
	prompt, err := j.prompt(ctx, t, past, w)
	if err == nil {
		err = j.launch(ctx, run, record.Request{Agent: &record.AgentCall{Name: t.AgentID, Prompt: prompt,
			Title: workTitle(t, past, w)}, Base: t.Base})
	}
	// An error that the shutdown of the server causes is not a refusal. The next process begins the work. Nor is a limit
	// that is reached, because the task waits until there is a place.
	if err == nil || ctx.Err() != nil || isConflict(err) {
		return err
	}
	if p := route.AsProblem(err, route.Local); p.Status < 500 && p.Kind != route.KindLimited {
		return &refusedWork{err}
	}
	return err
}

// launch begins a claimed run. Returns errEnded if the task has ended meanwhile.
func (j *job) launch(ctx context.Context, run record.Run, asked record.Request) error {
	j.starting.Lock()
	defer j.starting.Unlock()
	t, _, err := j.now(ctx)
	if err != nil {
		return err
	}
	if t.Ended() {
		return errEnded
	}
	_, err = j.engineer.Executor.Begin(ctx, run.Name(), asked)
	return err
}

// finished journals the end of a piece of work. It does nothing if the end is journalled already, which is so if the
// task was retried meanwhile.
func (j *job) finished(ctx context.Context, w work, run record.Run) error {
	j.starting.Lock()
	defer j.starting.Unlock()
	if _, past, err := j.now(ctx); err != nil || past.works[w.N-1].Ended {
		return err
	}
	end := work{N: w.N, Ended: true, OK: run.State == record.StateComplete, Error: run.Error, Head: run.Head}
	e := record.Event{Type: record.EventWork, Step: w.id(), Kind: workEnded, OK: &end.OK, Commit: run.Head,
		Reason: string(run.Reason), Message: run.Error, Data: encode(end)}
	if !end.OK {
		return j.fail(ctx, run.Reason, fmt.Sprintf("%s (%s)", cmp.Or(run.Error, string(run.Reason)), run.Name()), e)
	}
	return j.amend(ctx, func(t *record.Task) { t.SessionID = cmp.Or(run.Session, t.SessionID) }, e)
}

// cutShort returns the event of the end of work that was stopped from outside.
func cutShort(w work, why string) record.Event {
	return record.Event{Type: record.EventWork, Step: w.id(), Kind: workEnded,
		Data: encode(work{N: w.N, Ended: true, Error: why})}
}

// fail ends a task as failed and journals the given events with that.
func (j *job) fail(ctx context.Context, reason record.Reason, why string, events ...record.Event) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	if t.Ended() { // the state of an ended task does not change
		if len(events) == 0 {
			return nil
		}
		return j.amend(ctx, nil, events...)
	}
	why = text.Clip(why, 2000)
	key := "failed:" + strconv.Itoa(past.fails+1)
	events = append(events, record.Event{Type: record.EventWork, Kind: workFailed, Reason: string(reason), Message: why})
	t.Error = why
	events = append(events, j.toSlack(key, render.TaskFailed(t))...)
	events = append(events, j.toTicket(t, key, "ramus could not finish this.", render.OneLine(t.Error, 400))...)
	closed := past.closed || slices.ContainsFunc(events, func(e record.Event) bool { return e.Kind == heardClosed })
	if t.PRNumber != 0 && !closed { // the person who closed the pull request needs no comment
		events = append(events, j.toForge(key, message{Kind: mailFailed, Text: why})...)
	}
	return j.amendOpen(ctx, func(t *record.Task) { t.Status, t.Error = record.StateFailed, why }, events...)
}

// retry continues a failed task.
func (j *job) retry(ctx context.Context, by gitd.Person) error {
	j.starting.Lock()
	defer j.starting.Unlock()
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	if t.Status != record.StateFailed {
		return fmt.Errorf("%w: it is %s, not failed", record.ErrConflict, t.Status)
	}
	if past.merged {
		return errEnded
	}
	events := []record.Event{{Type: record.EventWork, Kind: workRetried,
		Message: "retried by " + cmp.Or(by.Name, j.engineer.Executor.Bot.Name)}}
	w, any := past.latest()
	status := record.StateSubmitted
	switch {
	case any && w.Published != "":
		status = record.StateAwaitingReview
		if _, _, shared := j.engineer.upstream(t.Repo); shared && (t.PRNumber == 0 || past.closed) {
			// The pull request was closed or could not be opened. Its branch may be deleted too.
			t.PRNumber, t.PRURL, status = 0, "", record.StateRunning
			events[0].Step = w.id()
			events = append(events, record.Event{Type: record.EventHeard, Kind: heardReopened})
		}
	case any:
		status = record.StateRunning
	}
	if t.PRNumber != 0 && status == record.StateRunning {
		status = record.StateAddressingComments
	}
	if any && !w.Ended {
		// The work ended with the task. New work replaces it.
		if err := j.engineer.Executor.Stop(ctx, t.Caller().String(), by); err != nil && !errors.Is(err, record.ErrNotFound) {
			return fmt.Errorf("cannot stop the work before: %w", err)
		}
		events = append(events, cutShort(w, "the task had ended"))
	}
	j.news.Store(true)
	// A concurrent retry may have continued the task already.
	return j.amendIf(ctx, func(now record.Task) bool { return now.Status == record.StateFailed }, func(now *record.Task) {
		now.Status, now.Error, now.PRNumber, now.PRURL = status, "", t.PRNumber, t.PRURL
	}, events...)
}

// cancel ends the task and removes its container.
func (j *job) cancel(ctx context.Context, drop bool, by gitd.Person) error {
	t, _, err := j.now(ctx)
	if err != nil {
		return err
	}
	if t.Status == record.StateComplete {
		return errEnded
	}
	if !t.Ended() {
		if err := j.fail(ctx, record.ReasonCancelled, "cancelled by "+cmp.Or(by.Name, j.engineer.Executor.Bot.Name)); err != nil {
			return err
		}
	}
	j.starting.Lock()
	defer j.starting.Unlock()
	// The container is removed now and not by the job, so that it is gone when cancel returns.
	if err := j.engineer.Executor.Stop(ctx, t.Caller().String(), by); err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	if !drop {
		return nil
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + t.Caller().Branch()})
}

// sayWords journals words for the task that did not come from the forge.
func (j *job) sayWords(ctx context.Context, key, text string, by gitd.Person) error {
	t, past, err := j.now(ctx)
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%w text: it is empty", record.ErrInvalid)
	case len(text) > maxSaid:
		return fmt.Errorf("%w text: it has %d bytes, at most %d", record.ErrInvalid, len(text), maxSaid)
	case len(key) > 200:
		return fmt.Errorf("%w key: it has more than 200 bytes", record.ErrInvalid)
	}
	if key == "" {
		key = newTaskID(by, "")
	}
	key = "word:" + key
	if past.known[key] {
		return nil
	}
	if t.Ended() {
		return errEnded
	}
	return j.amend(ctx, nil, heard(item{Key: key, By: by.Name, Word: &render.Word{Key: key, By: by.Name, Text: text}}))
}

// follower follows the run of a piece of work.
type follower struct {
	work int
	stop context.CancelFunc
	gone chan struct{} // closed when the fields below are set
	run  record.Run
	err  error
}

// workingEvery is the least time between two progress messages in the thread of a task.
const workingEvery = time.Minute

// watch follows a run to its end and posts progress in the thread of the task.
func (j *job) watch(ctx context.Context, w work) *follower {
	ctx, cancel := context.WithCancel(ctx)
	j.mu.Lock()
	caller := j.task.Caller()
	j.mu.Unlock()
	f := &follower{work: w.N, stop: cancel, gone: make(chan struct{})}
	go func() {
		defer close(f.gone)
		defer cancel()
		bads := 0
		for e, err := range j.engineer.Executor.Events(ctx, w.Run, 0, true) {
			if err != nil {
				break // Settled returns the same error
			}
			if e.Type == record.EventGate {
				j.ask(ctx, w, e)
				continue
			}
			doing, bad := DescribeEvent(e)
			if bad {
				bads++
			}
			if doing == "" || bads > maxWorking {
				continue
			}
			if _, err := j.working(ctx, fmt.Sprintf("%s:%d", w.id(), e.Seq), doing, bad); err != nil && ctx.Err() == nil {
				j.engineer.Log.Warn("cannot tell what a task is doing", "task", j.id, "err", err)
			}
		}
		f.run, f.err = j.engineer.Executor.Settled(ctx, caller, w.id())
		if f.err == nil && !f.run.Ended() {
			f.err = fmt.Errorf("cannot follow %s: %w", w.Run, record.ErrClosed)
		}
	}()
	return f
}

// working posts a progress message in the thread of the task. It posts nothing if it posted one less than workingEvery
// ago, unless bad is set.
func (j *job) working(ctx context.Context, key, text string, bad bool) (said bool, err error) {
	events := j.toSlack("working:"+key, render.TaskWorking(text))
	j.mu.Lock()
	said = len(events) > 0 && (bad || j.engineer.Now().Sub(j.told) >= workingEvery)
	if said {
		j.told = j.engineer.Now()
	}
	j.mu.Unlock()
	if !said {
		return false, nil
	}
	return true, j.amendNew(ctx, events[0])
}

// ask posts a question of a run in the thread of the task.
func (j *job) ask(ctx context.Context, w work, e record.Event) {
	for _, q := range j.toSlack("ask:"+w.id()+":"+e.Step, render.TaskAsks(e.Message)) {
		var m message
		if json.Unmarshal(q.Data, &m) != nil {
			return // it cannot fail, because toSlack encoded the message
		}
		m.Kind, m.Work, m.Item = mailAsk, w.N, e.Step
		if err := j.amendNew(ctx, queued(m)); err != nil && ctx.Err() == nil {
			j.engineer.Log.Warn("cannot keep a question of a task", "task", j.id, "err", err)
		}
	}
}

// maxWorking limits how many failures of one run are reported.
const maxWorking = 30

// amendNew journals a message unless it is queued already or the task has ended.
func (j *job) amendNew(ctx context.Context, e record.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(ctx); err != nil {
		return err
	}
	if j.task.Ended() || j.past.queued[e.Step] {
		return nil
	}
	return j.amendLocked(ctx, nil, e)
}
