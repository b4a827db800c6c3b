package model

import "sync"

// Bounds of the memory that requests take on their way.
const (
	heldByRun = 64 << 20
	heldByAll = 512 << 20
)

// ledger has an account for each run that has calls at work.
type ledger struct {
	mu       sync.Mutex // guards all below, and who uses an account
	accounts map[string]*account
	held     int64
}

// account is what a run's calls at work have used so far: it is not in the run's
// journal before they end.
type account struct {
	ledger *ledger
	run    string
	users  int   // guarded by ledger.mu
	held   int64 // bytes; guarded by ledger.mu

	// A call's end moves what it used from here to the journal in one step, and
	// nobody is admitted in between: else it would count twice, or not at all.
	mu     sync.Mutex // guards all below
	slots  int        // requests at work, those that make no model work included
	calls  int64      // those that do
	tokens int64
	micros int64
}

// open finds a run's account; it is given back by close.
func (l *ledger) open(run string) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[run]
	if a == nil {
		a = &account{ledger: l, run: run}
		if l.accounts == nil {
			l.accounts = make(map[string]*account)
		}
		l.accounts[run] = a
	}
	a.users++
	return a
}

func (a *account) close() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(a.ledger.accounts, a.run)
	}
}

// hold takes so many bytes of memory; false when that is too much.
func (a *account) hold(n int64) bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.held+n > heldByRun || a.ledger.held+n > heldByAll {
		return false
	}
	a.held += n
	a.ledger.held += n
	return true
}

func (a *account) release(n int64) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.held -= n
	a.ledger.held -= n
}
