package model

import "sync"

// Bounds on the memory for requests in progress.
const (
	heldByRun = 64 << 20
	heldByAll = 512 << 20
)

// ledger has an account for each run with calls in progress.
type ledger struct {
	mu       sync.Mutex // guards the fields below, and the users of accounts
	accounts map[string]*account
	held     int64
}

// account is the use of a run's calls in progress, which the run's journal gets when they end.
type account struct {
	ledger *ledger
	run    string
	users  int   // guarded by ledger.mu
	held   int64 // bytes; guarded by ledger.mu

	// The end of a call moves its use from here to the journal in one step. No call is admitted meanwhile, because it
	// would count twice or not at all.
	mu     sync.Mutex // guards the fields below
	slots  int        // requests in progress, including those that use no model
	calls  int64      // requests in progress that use a model
	tokens int64
	micros int64
}

// open returns the account of a run. close releases it.
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

// holdBytes adds n bytes of memory. Returns false if the bound is exceeded.
func (a *account) holdBytes(n int64) bool {
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
