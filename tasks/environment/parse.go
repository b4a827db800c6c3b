package environment

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/bytesize"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/tasks/document"
	"github.com/ramus-dev/ramus/tasks/service"
)

// Bounds of a file.
const (
	maxCommands  = 20       // setup commands, programs to start, checks, lock files
	maxCommand   = 16 << 10 // bytes of one
	maxNames     = 100      // environment variables, hosts, secrets, kept paths, specs
	maxEnvValue  = 8 << 10
	maxHeaders   = 10 // of one host
	maxHeader    = 1 << 10
	maxPath      = 1 << 10
	maxImageName = 300
)

var format = document.Format{
	Noun: "configuration of a repository", Needs: "leave the file out, or set a key such as setup", MaxBytes: MaxBytes,
}

// keys are the keys of a file. docs/environment.md describes them.
var keys = []string{"image", "dockerfile", "devcontainer", "setup", "start", "env", "secrets", "egress", "limits",
	"timeout", "dependencies",
	"checks", "agent", "plan", "review", "merge", "browser", "services", "keep"}

var (
	limitKeys      = []string{"memory", "cpus", "pids", "tmp", "file_size", "output", "disk"}
	startKeys      = []string{"name", "run", "dir", "port"}
	egressKeys     = []string{"host", "header"}
	dependencyKeys = []string{"manager", "lock", "install", "store"}
	checkKeys      = []string{"name", "task", "params", "run"}
)

// checkNames are the short names of the library's checks.
var checkNames = map[string]string{"tests": "lib_run_tests", "test": "lib_run_tests", "lint": "lib_run_lint",
	"build": "lib_run_build", "browser": "browser_test"}

var (
	validName   = pattern.New(`^[a-z0-9]{1,20}(?:-[a-z0-9]{1,20}){0,9}$`)
	validEnv    = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
	validSecret = pattern.New(`^[A-Z][A-Z0-9_]{0,99}$`)
	validTask   = pattern.New(`^[a-z][a-z0-9_]{0,99}$`)
	validAgent  = pattern.New(`^[a-z0-9][a-z0-9-]{0,39}$`)
	validLabel  = pattern.New(`^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$`)
	validToken  = pattern.New("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")
	validPort   = pattern.New(`^[1-9][0-9]{0,4}$`)
	// SecretRef matches the place of a secret's value in a header.
	SecretRef = pattern.New(`\bsecret:([A-Z][A-Z0-9_]{0,99})\b`)
)

// ValidSecret reports whether name can be the name of a secret: capital letters, digits and underscores, at most 100.
func ValidSecret(name string) bool { return validSecret.MatchString(name) }

// ValidHost reports whether an entry can be one of a list of hosts: NAME or *.NAME, with or without :PORT.
func ValidHost(entry string) bool {
	host := entry
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	if a, err := netip.ParseAddrPort(host); err == nil {
		return a.Port() != 0
	}
	if name, port, ok := strings.Cut(host, ":"); ok {
		if !validPort.MatchString(port) {
			return false
		}
		host = name
	}
	host = strings.TrimPrefix(host, "*.")
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.ToLower(host), ".") {
		if !validLabel.MatchString(label) {
			return false
		}
	}
	return true
}

// Parse reads a file. name is the name of the file in mistakes. The error has all mistakes, with line and column, and is
// then a [document.Problems].
func Parse(name string, text []byte) (File, error) {
	var f File
	if format.Blank(text) {
		return f, nil
	}
	d, root := format.Parse(name, text)
	r := &reader{Document: d, places: map[string]*document.Value{}}
	if root != nil {
		f = r.file(root)
	}
	if len(d.Problems) > 0 {
		return File{}, d.Mistakes()
	}
	f.places = r.places
	return f, nil
}

// reader makes a File from a document, and keeps the positions of its values by path.
type reader struct {
	*document.Document
	places map[string]*document.Value
}

func (r *reader) file(v *document.Value) (f File) {
	if !r.Object(v, "the configuration of a repository", keys) {
		return f
	}
	r.places[""] = v
	f.Image = r.image(v.Get("image"), "image")
	f.Dockerfile = r.path(v.Get("dockerfile"), "dockerfile")
	f.Devcontainer = r.path(v.Get("devcontainer"), "devcontainer")
	r.onlyOne(v, "image", "dockerfile", "devcontainer")
	f.Setup = r.commands(v.Get("setup"), "setup")
	f.Start = r.starts(v.Get("start"))
	f.Env = r.env(v.Get("env"), "env")
	f.Secrets = r.secrets(v.Get("secrets"))
	f.Egress = r.egress(v.Get("egress"))
	f.Limits = r.limits(v.Get("limits"))
	f.Timeout = r.duration(v.Get("timeout"), "timeout")
	f.Dependencies = r.dependencies(v.Get("dependencies"))
	f.Checks = r.checks(v.Get("checks"))
	f.Agent = r.matching(v.Get("agent"), "agent", validAgent, "lower-case letters, digits and hyphens, at most 40")
	r.places["plan"] = v.Get("plan")
	f.Plan = r.Flag(v.Get("plan"), "plan", false)
	f.Review = r.matching(v.Get("review"), "review", validAgent, "lower-case letters, digits and hyphens, at most 40")
	r.places["merge"] = v.Get("merge")
	f.Merge = Merge(r.Choice(v.Get("merge"), "merge", Merges, ""))
	f.Browser = r.paths(v.Get("browser"), "browser")
	f.Services = r.services(v.Get("services"))
	f.Keep = r.keep(v.Get("keep"))
	return f
}

// onlyOne reports a mistake if a mapping has more than one of some keys.
func (r *reader) onlyOne(v *document.Value, names ...string) {
	first := ""
	for _, f := range v.Fields {
		switch {
		case !slices.Contains(names, f.Key) || f.Value.Kind == document.NullValue:
		case first == "":
			first = f.Key
		default:
			r.Problem(f.Line, f.Column, "%s and %s are both set; want one of %s", first, f.Key, strings.Join(names, ", "))
		}
	}
}

// text returns a text of at most most bytes without control characters, apart from line breaks and tabs.
func (r *reader) text(v *document.Value, at string, most int) string {
	r.places[at] = v
	if v != nil && v.Kind == document.NullValue {
		return ""
	}
	s := r.Text(v, at)
	switch {
	case len(s) > most:
		r.At(v, "%s has %d bytes; at most %d are possible", at, len(s), most)
	case strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' || c == 0x7f }):
		r.At(v, "%s has a control character", at)
	case v != nil && v.Kind == document.StringValue && strings.TrimSpace(s) == "":
		r.At(v, "%s is empty", at)
	default:
		return s
	}
	return ""
}

// matching returns a text of a form.
func (r *reader) matching(v *document.Value, at string, form *pattern.Regexp, words string) string {
	s := r.text(v, at, maxPath)
	if s != "" && !form.MatchString(s) {
		r.At(v, "%s: %q is not possible; want %s", at, s, words)
		return ""
	}
	return s
}

func (r *reader) command(v *document.Value, at string) string { return r.text(v, at, maxCommand) }

func (r *reader) integer(v *document.Value, at string, least, most int) int {
	r.places[at] = v
	if v != nil && v.Kind == document.NullValue {
		return 0
	}
	return r.Integer(v, at, least, most, 0)
}

// list returns the items of a list of at most most. A missing value is an empty list.
func (r *reader) list(v *document.Value, at string, most int) []*document.Value {
	r.places[at] = v
	if v == nil || v.Kind == document.NullValue {
		return nil
	}
	list := r.List(v, at)
	if len(list) > most {
		r.At(v, "%s has %d entries; at most %d are possible", at, len(list), most)
		return nil
	}
	return list
}

// oneOrList returns the items of a list. A single value is a list of one.
func (r *reader) oneOrList(v *document.Value, at string, most int) []*document.Value {
	if v != nil && v.Kind == document.StringValue {
		r.places[at] = v
		return []*document.Value{v}
	}
	return r.list(v, at, most)
}

func (r *reader) commands(v *document.Value, at string) (list []string) {
	for i, c := range r.oneOrList(v, at, maxCommands) {
		list = append(list, r.command(c, fmt.Sprintf("%s.%d", at, i)))
	}
	return list
}

func (r *reader) image(v *document.Value, at string) string {
	s := r.text(v, at, maxImageName)
	if strings.ContainsAny(s, " \t\n\"'\\") || strings.HasPrefix(s, "-") {
		r.At(v, "%s: %q is no name of an image", at, s)
		return ""
	}
	return s
}

// path returns a relative path that stays in the repository.
func (r *reader) path(v *document.Value, at string) string {
	s := r.text(v, at, maxPath)
	if s == "" {
		return ""
	}
	clean := path.Clean(s)
	if path.IsAbs(s) || clean == ".." || strings.HasPrefix(clean, "../") || clean == ".git" ||
		strings.HasPrefix(clean, ".git/") || strings.Contains(s, "\n") {
		r.At(v, "%s: %q is not a path in the repository", at, s)
		return ""
	}
	return clean
}

func (r *reader) paths(v *document.Value, at string) (list []string) {
	for i, p := range r.oneOrList(v, at, maxNames) {
		list = append(list, r.path(p, fmt.Sprintf("%s.%d", at, i)))
	}
	return list
}

func (r *reader) keep(v *document.Value) []string {
	list := r.paths(v, "keep")
	for i, p := range list {
		if p == "." || strings.ContainsAny(p, "*?[") {
			r.At(r.places[fmt.Sprintf("keep.%d", i)], "keep: %q is not the path of a file or folder", p)
		}
	}
	return list
}

func (r *reader) duration(v *document.Value, at string) time.Duration {
	s := r.text(v, at, 100)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		r.At(v, "%s: %q is not a duration such as 90s, 10m or 24h", at, s)
		return 0
	}
	return d
}

func (r *reader) size(v *document.Value, at string) int64 {
	r.places[at] = v
	if v == nil || v.Kind == document.NullValue {
		return 0
	}
	s := v.Text
	if v.Kind != document.StringValue && v.Kind != document.NumberValue {
		r.At(v, "%s must be a size such as 512MiB, not %s", at, document.KindOf(v))
		return 0
	}
	if v.Kind == document.NumberValue {
		s = fmt.Sprint(v.Any)
	}
	n, err := bytesize.Parse(s)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is no size", s)
	}
	if err != nil {
		r.At(v, "%s: %v", at, err)
	}
	return n
}

func (r *reader) starts(v *document.Value) (list []Start) {
	names := map[string]bool{}
	for i, item := range r.oneOrList(v, "start", maxCommands) {
		at := fmt.Sprintf("start.%d", i)
		r.places[at] = item
		s := Start{Name: fmt.Sprintf("start-%d", i+1)}
		if item.Kind == document.StringValue {
			s.Run = r.command(item, at)
		} else if r.Object(item, at, startKeys) {
			if name := r.matching(item.Get("name"), at+".name", validName, "lower-case letters, digits and single hyphens"); name != "" {
				s.Name = name
			}
			s.Run = r.command(item.Get("run"), at+".run")
			s.Dir = r.path(item.Get("dir"), at+".dir")
			s.Port = r.integer(item.Get("port"), at+".port", 1, 65535)
			if item.Get("run") == nil {
				r.At(item, "%s needs run, a command", at)
			}
		}
		if names[s.Name] {
			r.At(item, "%s: there are two programs called %q", at, s.Name)
		}
		names[s.Name] = true
		list = append(list, s)
	}
	return list
}

// env reads a mapping of environment variables.
func (r *reader) env(v *document.Value, at string) map[string]string {
	r.places[at] = v
	if v == nil || v.Kind == document.NullValue {
		return nil
	}
	if v.Kind != document.MapValue {
		r.At(v, "%s must be a mapping of names to values, not %s", at, document.KindOf(v))
		return nil
	}
	if len(v.Fields) > maxNames {
		r.At(v, "%s has %d variables; at most %d are possible", at, len(v.Fields), maxNames)
		return nil
	}
	env := make(map[string]string, len(v.Fields))
	for _, f := range v.Fields {
		switch {
		case !validEnv.MatchString(f.Key):
			r.Problem(f.Line, f.Column, "%s: %q is no name of an environment variable", at, f.Key)
		case strings.HasPrefix(f.Key, "RAMUS"):
			r.Problem(f.Line, f.Column, "%s: the variable %s belongs to ramus", at, f.Key)
		default:
			env[f.Key] = r.scalar(f.Value, at+"."+f.Key, maxEnvValue)
		}
	}
	return env
}

// scalar returns a single value as it is written, also an empty one.
func (r *reader) scalar(v *document.Value, at string, most int) string {
	r.places[at] = v
	switch v.Kind {
	case document.NullValue, document.BrokenValue:
		return ""
	case document.StringValue, document.NumberValue, document.BoolValue:
	default:
		r.At(v, "%s must be a single value, not %s", at, document.KindOf(v))
		return ""
	}
	s := v.Text
	if len(s) > most || strings.ContainsRune(s, 0) {
		r.At(v, "%s is longer than %d bytes, or has a NUL byte", at, most)
		return ""
	}
	return s
}

func (r *reader) secrets(v *document.Value) (list []string) {
	for i, item := range r.oneOrList(v, "secrets", maxNames) {
		at := fmt.Sprintf("secrets.%d", i)
		name := r.matching(item, at, validSecret,
			"the name of a secret in capital letters, digits and underscores, never its value")
		if slices.Contains(list, name) {
			r.At(item, "%s: %s is named twice", at, name)
		}
		list = append(list, name)
	}
	return list
}

func (r *reader) egress(v *document.Value) (list []Egress) {
	for i, item := range r.oneOrList(v, "egress", maxNames) {
		at := fmt.Sprintf("egress.%d", i)
		r.places[at] = item
		var e Egress
		if item.Kind == document.StringValue {
			e.Host = r.host(item, at)
		} else if r.Object(item, at, egressKeys) {
			e.Host = r.host(item.Get("host"), at+".host")
			e.Header = r.header(item.Get("header"), at+".header")
			if item.Get("host") == nil {
				r.At(item, "%s needs host", at)
			}
			if len(e.Header) > 0 && strings.HasPrefix(e.Host, "*.") {
				r.At(item, "%s: headers are for one host, not for %s", at, e.Host)
			}
		}
		list = append(list, e)
	}
	return list
}

func (r *reader) host(v *document.Value, at string) string {
	s := strings.ToLower(r.text(v, at, 300))
	if s != "" && !ValidHost(s) {
		r.At(v, "%s: %q is no host; want NAME or *.NAME, with :PORT if it is not 80 or 443", at, s)
		return ""
	}
	return s
}

func (r *reader) header(v *document.Value, at string) map[string]string {
	r.places[at] = v
	if v == nil || v.Kind == document.NullValue {
		return nil
	}
	if v.Kind != document.MapValue || len(v.Fields) > maxHeaders {
		r.At(v, "%s must be a mapping of at most %d names to values", at, maxHeaders)
		return nil
	}
	header := make(map[string]string, len(v.Fields))
	for _, f := range v.Fields {
		value := r.scalar(f.Value, at+"."+f.Key, maxHeader)
		switch {
		case !validToken.MatchString(f.Key) || slices.Contains(ownHeaders, strings.ToLower(f.Key)):
			r.Problem(f.Line, f.Column, "%s: %q is no header that can be added", at, f.Key)
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c >= 0x7f }):
			r.At(f.Value, "%s.%s has a character that no header has", at, f.Key)
		default:
			header[f.Key] = value
		}
	}
	return header
}

// ownHeaders are those that belong to a connection, not to a request of a program.
var ownHeaders = []string{"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade",
	"keep-alive",
	"proxy-authorization", "proxy-authenticate", "proxy-connection"}

func (r *reader) limits(v *document.Value) (l Limits) {
	r.places["limits"] = v
	if v == nil || v.Kind == document.NullValue || !r.Object(v, "limits", limitKeys) {
		return l
	}
	l.Memory = r.size(v.Get("memory"), "limits.memory")
	l.Tmp = r.size(v.Get("tmp"), "limits.tmp")
	l.FileSize = r.size(v.Get("file_size"), "limits.file_size")
	l.Output = r.size(v.Get("output"), "limits.output")
	l.Disk = r.size(v.Get("disk"), "limits.disk")
	l.PIDs = int64(r.integer(v.Get("pids"), "limits.pids", 1, 1<<22))
	if c := v.Get("cpus"); c != nil && c.Kind != document.NullValue {
		r.places["limits.cpus"] = c
		l.CPUs = r.Number(c, "limits.cpus", 0)
		if !(l.CPUs > 0 && l.CPUs <= 1024) {
			r.At(c, "limits.cpus must be above 0 and at most 1024")
			l.CPUs = 0
		}
	}
	return l
}

func (r *reader) dependencies(v *document.Value) (list []Dependency) {
	for i, item := range r.list(v, "dependencies", maxCommands) {
		at := fmt.Sprintf("dependencies.%d", i)
		r.places[at] = item
		if !r.Object(item, at, dependencyKeys) {
			continue
		}
		d := Dependency{
			Manager: r.Choice(item.Get("manager"), at+".manager", Managers, ""),
			Lock:    r.path(item.Get("lock"), at+".lock"),
			Install: r.command(item.Get("install"), at+".install"),
			Store:   r.text(item.Get("store"), at+".store", maxPath),
		}
		if item.Get("manager") == nil || item.Get("lock") == nil {
			r.At(item, "%s needs manager and lock", at)
		}
		if rest, home := strings.CutPrefix(d.Store, "~/"); d.Store != "" &&
			(!home && !path.IsAbs(d.Store) || strings.Contains("/"+rest+"/", "/../")) {
			r.At(item.Get("store"), "%s.store: %q is not an absolute path, or one below ~/", at, d.Store)
		}
		list = append(list, d)
	}
	return list
}

func (r *reader) checks(v *document.Value) (list []Check) {
	for i, item := range r.oneOrList(v, "checks", maxCommands) {
		at := fmt.Sprintf("checks.%d", i)
		r.places[at] = item
		var c Check
		if item.Kind == document.StringValue {
			c.Task = r.task(item, at)
		} else if r.Object(item, at, checkKeys) {
			r.onlyOne(item, "task", "run")
			c.Task = r.task(item.Get("task"), at+".task")
			c.Run = r.command(item.Get("run"), at+".run")
			c.Name = r.matching(item.Get("name"), at+".name", validName, "lower-case letters, digits and single hyphens")
			if p := item.Get("params"); p != nil && p.Kind == document.MapValue {
				c.Params, _ = p.Data().(map[string]any)
			} else if p != nil {
				r.At(p, "%s.params must be a mapping, not %s", at, document.KindOf(p))
			}
			switch {
			case item.Get("task") == nil && item.Get("run") == nil:
				r.At(item, "%s needs task, or run", at)
			case item.Get("run") != nil && item.Get("name") == nil:
				r.At(item, "%s needs a name, by which evidence shows the check", at)
			case item.Get("run") != nil && c.Params != nil:
				r.At(item, "%s: params are for task", at)
			}
		}
		list = append(list, c)
	}
	return list
}

// task returns the name of a task of the library. Checks have short names, too.
func (r *reader) task(v *document.Value, at string) string {
	s := r.matching(v, at, validTask, "tests, lint, build, browser, or a task of the library")
	if long, ok := checkNames[s]; ok {
		return long
	}
	if known := slices.Collect(maps.Keys(checkNames)); s != "" && !strings.Contains(s, "_") {
		r.At(v, "%s: there is no check %q%s", at, s, document.Suggest(s, known))
		return ""
	}
	return s
}

// services reads the services, and notes their places.
func (r *reader) services(v *document.Value) []service.Service {
	r.places["services"] = v
	if v != nil {
		for _, f := range v.Fields {
			r.places["services."+f.Key] = f.Value
		}
	}
	return service.Parse(r.Document, v)
}
