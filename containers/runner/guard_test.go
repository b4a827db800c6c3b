package runner_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/containers"
)

// TestGuard starts programs in a guarded command in several ways, and has the host decide on those of one name.
func TestGuard(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		var mu sync.Mutex
		var asked []string
		h := b.host(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var call containers.RuleCall
			if err := json.NewDecoder(r.Body).Decode(&call); err != nil || r.URL.Path != containers.RulePath {
				t.Errorf("%s: %v", r.URL.Path, err)
			}
			mu.Lock()
			asked = append(asked, strings.Join(call.Args, " "))
			mu.Unlock()
			if slices.Contains(call.Args, "no") {
				http.Error(w, "nobody may", http.StatusForbidden)
			}
		}))
		guarded := func(line string) (int, string, string) {
			exit, out, errs := run(t, h, containers.Command{Shell: line, Guard: []string{"gu?rd*"}})
			return exit.Code, out, errs
		}
		if code, out, errs := guarded("cp /bin/echo guarded && ./guarded yes && ls / >/dev/null && echo end"); code != 0 || out != "yes\nend\n" {
			t.Fatalf("%d, %q %s", code, out, errs)
		}
		for _, line := range []string{"./guarded no", workDir + "/guarded no", "sh -c './guarded no; exit $?'", "(./guarded no) & wait $!",
			"ln -s guarded guard2; ./guard2 no", "env ./guarded no", "PATH=. guarded no"} {
			if code, out, errs := guarded(line); code != 126 && code != 127 || strings.Contains(out, "no") || !strings.Contains(errs, "ramus: nobody may") {
				t.Errorf("%s: %d, %q %q", line, code, out, errs)
			}
		}
		// Only calls that the host decides on have a bound on their arguments.
		long := "printf 'x %.0s' $(seq 3000) >words; head -c 100000 /dev/zero | tr '\\0' y >wide; "
		if code, out, errs := guarded(long + "env echo $(cat words) $(cat wide) | wc -c"); code != 0 || out != "106001\n" {
			t.Errorf("many arguments of a free program: %d, %q %s", code, out, errs)
		}
		const tooLong = "ramus: cannot decide on a program with more than 1000 arguments"
		if code, out, errs := guarded(long + "env ./guarded $(cat words)"); code == 0 || out != "" || !strings.Contains(errs, tooLong) {
			t.Errorf("many arguments of a guarded program: %d, %q %s", code, out, errs)
		}
		if code, out, errs := guarded(long + "env ./guarded $(cat wide) $(cat wide)"); code == 0 || out != "" || !strings.Contains(errs, tooLong) {
			t.Errorf("long arguments of a guarded program: %d, %q %s", code, out, errs)
		}
		// The command itself is not asked about, and one without a guard asks nothing.
		if exit, out, errs := run(t, h, containers.Command{Args: []string{"./guarded", "no"}, Guard: []string{"guarded"}}); out != "no\n" {
			t.Errorf("itself: %+v, %q %s", exit, out, errs)
		}
		if exit, out, errs := run(t, h, containers.Command{Shell: "./guarded no"}); out != "no\n" {
			t.Errorf("without: %+v, %q %s", exit, out, errs)
		}
		if exit, _, errs := run(t, h, containers.Command{Args: []string{"/none"}, Guard: []string{"x"}}); exit.Code != 127 {
			t.Errorf("no program: %+v %s", exit, errs)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 8 || asked[0] != "./guarded yes" {
			t.Errorf("asked %q", asked)
		}
	})
}
