package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/ramus-dev/ramus/containers/proc"
)

// kill ends process 1, and so all others, and returns when they are gone.
func (s *Engine) kill(ctx context.Context, st *state) error {
	if st.PID == 0 && st.Boot == proc.BootID() && s.now().Sub(st.Created) < statusGrace {
		s.awaitStatus(ctx, st)
	}
	if !s.alive(st) {
		return nil
	}
	return proc.Kill(ctx, st.PID, func() bool { return s.alive(st) })
}

// awaitStatus waits until bubblewrap has named its child, if an earlier process of ramus started it and ended at once.
func (s *Engine) awaitStatus(ctx context.Context, st *state) {
	s.mu.Lock()
	ours := s.starting[st.ID] || s.sidecars[st.ID] != nil
	s.mu.Unlock()
	if ours { // Start and RunSidecar wait themselves
		return
	}
	proc.Await(ctx, statusGrace, nil, func() bool { return s.alive(st) })
}

// awaitChild waits until bubblewrap has named its child or has ended.
func (s *Engine) awaitChild(id string, ended <-chan struct{}) {
	proc.Await(context.Background(), statusGrace, ended, func() bool {
		_, err := statusPID(s.statusFile(id))
		return err == nil
	})
}

// alive reports whether process 1 of a container runs. If ramus crashed before it noted the process, alive finds it by the status
// of bubblewrap and the command line, and notes it in st.
func (s *Engine) alive(st *state) bool {
	if st.Boot != proc.BootID() {
		return false
	}
	if st.PID == 0 {
		pid, err := statusPID(s.statusFile(st.ID))
		if err != nil {
			return false
		}
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil || !bytes.Contains(line, []byte(st.ID)) {
			return false
		}
		start, err := proc.Start(pid)
		if err != nil {
			return false
		}
		st.PID, st.Start = pid, start
		return true
	}
	start, err := proc.Start(st.PID)
	return err == nil && start == st.Start
}

// statusFile returns the file to which bubblewrap writes its status.
func (s *Engine) statusFile(id string) string { return filepath.Join(s.home(id), "status") }

// statusPID reads the number of the child from the status of bubblewrap.
func statusPID(name string) (int, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var v struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&v); err != nil {
		return 0, fmt.Errorf("cannot read bubblewrap's status: %w", err)
	}
	if v.PID <= 1 {
		return 0, errors.New("bubblewrap's status names no process")
	}
	return v.PID, nil
}
