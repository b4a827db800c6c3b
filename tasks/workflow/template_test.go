package workflow

import (
	"bytes"
	"context"
	"fmt"
	"github.com/ramus-dev/ramus/tasks"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shells are the shells of this machine that a command may meet.
func shells(t *testing.T) []string {
	var found []string
	for _, name := range []string{"sh", "dash", "bash"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		t.Skip("cannot run here: there is no shell")
	}
	return found
}

// run runs a command line and returns what it prints.
func run(t *testing.T, shell, command string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), shell, "-c", command)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return out, err
}

// nasty are values that mean something to a shell.
var nasty = []string{
	"", " ", "a b", "'", "''", `"`, "`id`", "$(id)", "$HOME", "${HOME}", `\`, `\\`, `a\`, "\n", "a\nb", "#", "# x", ";",
	"; touch owned",
	"&& touch owned", "| touch owned", "*", "?", "[a-z]*", "~", "~root", "-n", "--", "(", ")", "{a,b}", "!", "!!", "<",
	">", "\t", "ä", "\xff",
	"'; touch owned; '", `"; touch owned; "`, "$'x'", "\x01", "a'b\"c", "EOF\ntouch owned\n", "' \n touch owned #",
	"%s", "=", "a=b", "if", "esac", "done", "}", "{{x}}",
}

func randomValue(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return nasty[r.IntN(len(nasty))]
	}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(nasty[r.IntN(len(nasty))])
	}
	return b.String()
}

// The value of a slot reaches the command as one argument, byte for byte,
// at every place that a slot may have.
func TestSlotIsOneArgument(t *testing.T) {
	found := shells(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, frame := range []string{
		"printf '%s\\0' {{v}}",
		"printf '%s\\0' a{{v}}b",
		"printf '%s\\0' --name={{v}}",
		"printf '%s\\0' \"x y\"{{v}}'z'",
		"x={{v}}; printf '%s\\0' \"$x\"",
		"x={{v}} && printf '%s\\0' \"$x\" # a comment's quote",
		"printf '%s\\0' $(:) {{v}}",
		"(printf '%s\\0' {{v}})",
		"cat <<'END' >/dev/null\n'\nEND\nprintf '%s\\0' {{v}}",
		"cat <<-END >/dev/null\n\t\"\n\tEND\nprintf '%s\\0' {{v}}",
		"for x in {{v}}; do printf '%s\\0' \"$x\"; done",
		"case a in (a) printf '%s\\0' {{v}} ;; esac",
		"case a in a) printf '%s\\0' {{v}} ;; esac",
		"f() { printf '%s\\0' \"$1\"; }; f {{v}}",
		"printf '%s\\0' \\\n  {{v}}",
		"echo \"$(echo \"it's\")\" >/dev/null; printf '%s\\0' {{v}}",
		"echo `echo a` $((1 + 2)) ${HOME:-x} >/dev/null; printf '%s\\0' {{v}}",
		"echo \\' \\\" \\\\ >/dev/null; printf '%s\\0' {{v}}",
		"if true; then printf '%s\\0' {{v}}; fi",
		"true;# '\nprintf '%s\\0' {{v}}",
		"echo a#' {{w}}' >/dev/null",
	} {
		tm, wrong := parseTemplate(frame)
		wrong = append(wrong, checkCommand(tm)...)
		if strings.Contains(frame, "{{w}}") {
			if len(wrong) == 0 {
				t.Errorf("%q: a slot in quotes was not refused", frame)
			}
			continue
		}
		if len(wrong) > 0 {
			t.Errorf("%q: %v", frame, wrong)
			continue
		}
		for i := range 25 {
			v := nasty[i%len(nasty)]
			if i >= 10 {
				v = randomValue(r)
			}
			command, err := tm.command(scope{state: map[string]any{"v": v}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := run(t, found[r.IntN(len(found))], command)
			want := v
			if i := strings.Index(frame, "a{{v}}b"); i >= 0 {
				want = "a" + v + "b"
			} else if strings.Contains(frame, "--name=") {
				want = "--name=" + v
			} else if strings.Contains(frame, "'z'") {
				want = "x y" + v + "z"
			}
			if err != nil || string(out) != want+"\x00" {
				t.Errorf("%q with %q printed %q (%v)", frame, v, out, err)
			}
		}
	}
}

// The pieces that random templates are made of: everything that changes how a
// shell reads on.
var pieces = []string{
	"echo ", " ", " ", "\n", "'", "'", "\"", "\"", "`", "$(", ")", "(", "((", "))", "$((", "${", "}", "${x:-", "$",
	"\\", "\\\n", "#", " #", ";", "; ", "&& ", "| ",
	"<<E", "<<'E'", "<<-E", "<<<", "\nE\n", "\n\tE\n", "E", "case a in a) ", "case a in (a) ", " ;; esac", "esac", "a",
	"b=", "if true; then ", "; fi", "{ ", "; }", "$'", "$\"",
	"1+", "x", ">/dev/null ", "f() ", "[ a ", "=", "!", "$$", "$#", "\t", "it's", "\"$x\"", "$(echo a)",
	"\"$(echo 'b')\"", "`echo c`",
	"\\ ", "\\'", "\\\"", "$(echo a)#", "$((1))#", "#'", " # \n", "'\n", "\n'", ")#", "<<E ", "<<E\n", "\\\n#",
	" \\\n ", "'a'#", "\"a\"#'",
}

// For random command templates: wherever the check accepts a slot, the value
// that is put there is data. The proof is a value that would make a file if
// any shell took any of it for a command.
func TestAcceptedSlotsAreData(t *testing.T) {
	found := shells(t)
	r := rand.New(rand.NewPCG(3, 4))
	rounds := 4_000
	if n, err := strconv.Atoi(os.Getenv("RAMUS_TEMPLATE_ROUNDS")); err == nil {
		rounds = n
	}
	// Each would make the file HIT if a shell read it as anything but data.
	payloads := []string{
		"';>HIT;'", "\";>HIT;\"", "\n >HIT \n", "$(>HIT)", "`>HIT`", "';>HIT #", "\\';>HIT;'",
		"\nE\n>HIT\n", "$(>HIT)'$(>HIT)'\"$(>HIT)\"", ")\n>HIT\n(", "))\n>HIT\n", "}\n>HIT\n", ";; esac\n>HIT\n",
		"'\"`\n>HIT\n`\"'", "\\", "'", "&>HIT", "|>HIT",
	}
	accepted, ran := 0, 0
	dir := t.TempDir()
	hit := func(shell string, commands []string) bool {
		// One shell for many commands, each evaluated in a subshell of its own:
		// a process for each would take minutes.
		var script strings.Builder
		for _, command := range commands {
			fmt.Fprintf(&script, "(eval %s) >/dev/null 2>&1 </dev/null\n", tasks.Quote(command))
		}
		cmd := exec.Command(shell)
		cmd.Dir, cmd.Env = dir, []string{"PATH=/nowhere"}
		cmd.Stdin = strings.NewReader(script.String())
		_ = cmd.Run()
		return os.Remove(filepath.Join(dir, "HIT")) == nil
	}
	// The proof is only worth something if a slot in a wrong place is found out.
	for _, unsafe := range []string{"echo '{{v}}'", `echo "{{v}}"`, "# {{v}}", "cat <<E\n{{v}}\nE\n", "echo \"$(echo \"{{v}}\")\""} {
		tm, _ := parseTemplate(unsafe)
		found := slices.ContainsFunc(payloads, func(v string) bool {
			command, err := tm.command(scope{state: map[string]any{"v": v}})
			return err == nil && hit(found[0], []string{command})
		})
		if !found {
			t.Errorf("no value breaks out of %q: the test would not notice", unsafe)
		}
	}
	var batch []string
	flush := func() {
		for _, shell := range found[min(1, len(found)-1):] { // sh is one of the others
			if !hit(shell, batch) {
				continue
			}
			for _, command := range batch {
				if hit(shell, []string{command}) {
					t.Errorf("%s ran a value as a command: %q", shell, command)
				}
			}
		}
		batch = nil
	}
	for range rounds {
		var b strings.Builder
		slots := 0
		for range 2 + r.IntN(8) {
			if r.IntN(4) == 0 {
				b.WriteString("{{v}}")
				slots++
			} else {
				b.WriteString(pieces[r.IntN(len(pieces))])
			}
		}
		if slots == 0 {
			b.WriteString("{{v}}")
		}
		tm, wrong := parseTemplate(b.String())
		if len(wrong) > 0 || len(checkCommand(tm)) > 0 || len(tm.slots()) == 0 {
			continue
		}
		accepted++
		// A command name that comes from a value is the author's own choice.
		if first := strings.TrimLeft(b.String(), " \n\t;&|(){}!"); strings.HasPrefix(first, "{{v}}") {
			continue
		}
		command, err := tm.command(scope{state: map[string]any{"v": payloads[r.IntN(len(payloads))]}})
		if err != nil {
			continue
		}
		ran++
		if batch = append(batch, command); len(batch) == 100 {
			flush()
		}
	}
	flush()
	t.Logf("%d templates: %d accepted, %d run", rounds, accepted, ran)
	if accepted < rounds/100 {
		t.Errorf("only %d of %d templates were accepted; this proves nothing", accepted, rounds)
	}
}
