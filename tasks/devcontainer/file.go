package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/service"
)

// Path is where the file is looked for if no other path is named.
const Path = ".devcontainer/devcontainer.json"

// File has the parts of a devcontainer.json that ramus uses.
type File struct {
	// Path is the file's own, in the repository.
	Path string
	// Image is the image, unless Build is set.
	Image string
	Build *Build
	// Features are installed in the image, by name, with their options. Order names those that are installed first.
	Features map[string]json.RawMessage
	Order    []string
	// Env is the environment of commands, containerEnv with remoteEnv over it, "K=V", in order.
	Env []string
	// Commands are shell commands that run once in a new container, in order.
	Commands []string
	// Ports are the ports of the application.
	Ports []int
	// Refused names the parts that ramus refuses, and Ignored those that have no effect, in order.
	Refused, Ignored []string
}

// Build describes an image that a Dockerfile builds. Paths are in the repository.
type Build struct {
	Dockerfile, Context, Target string
	Args                        map[string]string
}

// Bounds on a file.
const (
	maxItems   = 100      // variables, arguments, features, ports, commands
	maxText    = 8 << 10  // bytes of a value of the environment
	maxCommand = 16 << 10 // bytes of a command
	workDir    = "/work"
)

// refusedKeys are the parts that would open the walls of a container, or run something outside of one.
var refusedKeys = []string{"mounts", "privileged", "runArgs", "capAdd", "securityOpt", "workspaceMount",
	"initializeCommand", "appPort"}

// commandKeys are the commands that run once in a new container, in this order.
var commandKeys = []string{"onCreateCommand", "updateContentCommand", "postCreateCommand"}

// usedKeys are the other parts that have an effect, or that need none.
var usedKeys = []string{"$schema", "name", "image", "build", "dockerFile", "context", "features",
	"overrideFeatureInstallOrder",
	"containerEnv", "remoteEnv", "forwardPorts", "customizations"}

// raw is the file as it is written.
type raw struct {
	Image       string                     `json:"image"`
	Build       *rawBuild                  `json:"build"`
	DockerFile  string                     `json:"dockerFile"`
	Context     string                     `json:"context"`
	Features    map[string]json.RawMessage `json:"features"`
	Order       []string                   `json:"overrideFeatureInstallOrder"`
	Container   map[string]*string         `json:"containerEnv"`
	Remote      map[string]*string         `json:"remoteEnv"`
	OnCreate    json.RawMessage            `json:"onCreateCommand"`
	UpdateIn    json.RawMessage            `json:"updateContentCommand"`
	PostCreate  json.RawMessage            `json:"postCreateCommand"`
	Ports       []json.RawMessage          `json:"forwardPorts"`
	ComposeFile json.RawMessage            `json:"dockerComposeFile"`
}

type rawBuild struct {
	Dockerfile string             `json:"dockerfile"`
	Context    string             `json:"context"`
	Target     string             `json:"target"`
	Args       map[string]*string `json:"args"`
	Options    json.RawMessage    `json:"options"`
	CacheFrom  json.RawMessage    `json:"cacheFrom"`
}

// Parse reads a devcontainer.json whose path in the repository is at. The error has the place of the first mistake.
func Parse(at string, text []byte) (File, error) {
	fail := func(err error) (File, error) {
		line, column := 1, 1
		var m *mistake
		if errors.As(err, &m) {
			line, column = positionOf(text, m.offset)
		}
		return File{}, fmt.Errorf("%s:%d:%d: %w", at, line, column, err)
	}
	std, err := standardize(text)
	if err != nil {
		return fail(err)
	}
	var keys map[string]json.RawMessage
	var r raw
	if err := json.Unmarshal(std, &keys); err != nil {
		return fail(&mistake{0, "the file must be an object"})
	}
	if err := decode(std, &r); err != nil {
		return fail(err)
	}
	f := File{Path: at, Order: r.Order}
	for _, read := range []func() error{
		func() error { return f.image(r) },
		func() error { return f.features(r.Features) },
		func() error { return f.environment(r) },
		func() error { return f.commands(r) },
		func() error { return f.ports(r.Ports) },
	} {
		if err := read(); err != nil {
			return fail(err)
		}
	}
	if r.Build != nil && r.Build.Options != nil {
		f.Refused = append(f.Refused, "build.options")
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch {
		case slices.Contains(refusedKeys, key):
			f.Refused = append(f.Refused, key)
		case slices.Contains(usedKeys, key), slices.Contains(commandKeys, key):
		default:
			f.Ignored = append(f.Ignored, clip(key))
		}
	}
	return f, nil
}

// decode reads JSON into v, and returns a mistake for a value of another kind.
func decode(text []byte, v any) error {
	err := json.Unmarshal(text, v)
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return &mistake{kind.Offset - 1, fmt.Sprintf("%s cannot be a JSON %s", kind.Field, kind.Value)}
	}
	return err
}

// clip returns a text of the file as it is shown in a mistake.
func clip(s string) string { return text.Clip(s, 120) }

// image reads the image, or how it is built.
func (f *File) image(r raw) error {
	if r.ComposeFile != nil {
		return errors.New("dockerComposeFile is not supported; use image or build, and services in .ramus/config.yaml")
	}
	b := r.Build
	if b == nil && r.DockerFile != "" {
		b = &rawBuild{Dockerfile: r.DockerFile, Context: r.Context}
	}
	if b == nil || b.Dockerfile == "" {
		if r.Image == "" {
			return errors.New("there is neither image nor build.dockerfile")
		}
		if !service.ValidImage(r.Image) {
			return fmt.Errorf("%q cannot be the name of an image", clip(r.Image))
		}
		f.Image = r.Image
		return nil
	}
	f.Build = &Build{Target: b.Target, Args: map[string]string{}}
	var err error
	if f.Build.Dockerfile, err = f.within("the Dockerfile", b.Dockerfile); err != nil {
		return err
	}
	if f.Build.Context, err = f.within("the context", defaulted(b.Context, ".")); err != nil {
		return err
	}
	if !validTarget.MatchString(defaulted(b.Target, "x")) {
		return fmt.Errorf("build.target: %q is not possible", clip(b.Target))
	}
	if len(b.Args) > maxItems {
		return fmt.Errorf("build.args may have %d arguments", maxItems)
	}
	for name, v := range b.Args {
		if !validEnv.MatchString(name) || v == nil || len(*v) > maxText {
			return fmt.Errorf("build.args: %q is not possible", clip(name))
		}
		value, _ := expand(*v)
		f.Build.Args[name] = value
	}
	return nil
}

// within returns the path in the repository of one that the file names, relative to itself.
func (f *File) within(what, p string) (string, error) {
	joined := path.Join(path.Dir(f.Path), p)
	if path.IsAbs(p) || strings.ContainsAny(p, "\\\x00$") || joined == ".." || strings.HasPrefix(joined, "../") {
		return "", fmt.Errorf("%s %q is not in the repository", what, clip(p))
	}
	return joined, nil
}

// features reads the features. Those of the repository are below the file's folder, and all others are names.
func (f *File) features(all map[string]json.RawMessage) error {
	if len(all) > maxItems || len(f.Order) > maxItems {
		return fmt.Errorf("there may be %d features", maxItems)
	}
	for name, options := range all {
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") {
			p, err := f.within("the feature", name)
			if err != nil {
				return err
			}
			if own := path.Dir(f.Path); own != "." && !strings.HasPrefix(p, own+"/") {
				return fmt.Errorf("the feature %q is not in the folder of the file", clip(name))
			}
		} else if !validFeature.MatchString(name) {
			return fmt.Errorf("%q cannot be the name of a feature", clip(name))
		}
		var v any
		if json.Unmarshal(options, &v) != nil {
			return fmt.Errorf("the options of the feature %q are no JSON", clip(name))
		}
		switch v := v.(type) {
		case string, bool:
		case map[string]any:
			for key, value := range v {
				switch value.(type) {
				case string, bool:
				default:
					return fmt.Errorf("the option %q of the feature %q must be text, true or false", clip(key), clip(name))
				}
			}
		default:
			return fmt.Errorf("the options of the feature %q must be an object", clip(name))
		}
	}
	f.Features = all
	return nil
}

// environment reads containerEnv and remoteEnv.
func (f *File) environment(r raw) error {
	env := map[string]string{}
	for _, part := range []struct {
		name string
		vars map[string]*string
	}{{"containerEnv", r.Container}, {"remoteEnv", r.Remote}} {
		if len(part.vars) > maxItems {
			return fmt.Errorf("%s may have %d variables", part.name, maxItems)
		}
		for _, name := range slices.Sorted(maps.Keys(part.vars)) {
			value := part.vars[name]
			if !validEnv.MatchString(name) || strings.HasPrefix(name, "RAMUS_") {
				return fmt.Errorf("%s: %q cannot be set", part.name, clip(name))
			}
			if value == nil {
				delete(env, name)
				continue
			}
			expanded, ok := expand(*value)
			if !ok {
				f.Ignored = append(f.Ignored, part.name+"."+name)
				continue
			}
			if len(expanded) > maxText || strings.ContainsRune(expanded, 0) {
				return fmt.Errorf("%s: the value of %s is not possible", part.name, name)
			}
			env[name] = expanded
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		f.Env = append(f.Env, name+"="+env[name])
	}
	return nil
}

// commands reads the commands of a new container.
func (f *File) commands(r raw) error {
	for i, text := range []json.RawMessage{r.OnCreate, r.UpdateIn, r.PostCreate} {
		list, err := commandsOf(text)
		if err != nil {
			return fmt.Errorf("%s: %w", commandKeys[i], err)
		}
		f.Commands = append(f.Commands, list...)
	}
	return nil
}

// commandsOf returns the shell commands of a text, of a list of arguments, or of an object of both.
func commandsOf(text json.RawMessage) ([]string, error) {
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return nil, nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	if named, ok := v.(map[string]any); ok {
		if len(named) > maxItems {
			return nil, fmt.Errorf("at most %d commands are possible", maxItems)
		}
		var list []string
		for _, name := range slices.Sorted(maps.Keys(named)) {
			c, err := commandOf(named[name])
			if err != nil {
				return nil, err
			}
			if c != "" {
				list = append(list, c)
			}
		}
		return list, nil
	}
	c, err := commandOf(v)
	if err != nil || c == "" {
		return nil, err
	}
	return []string{c}, nil
}

func commandOf(v any) (string, error) {
	var c string
	switch v := v.(type) {
	case string:
		c, _ = expand(v)
	case []any:
		if len(v) > maxItems {
			return "", fmt.Errorf("at most %d arguments are possible", maxItems)
		}
		var words []string
		for _, item := range v {
			word, ok := item.(string)
			if !ok {
				return "", errors.New("an argument must be text")
			}
			word, _ = expand(word)
			words = append(words, tasks.Quote(word))
		}
		c = strings.Join(words, " ")
	default:
		return "", errors.New("want text, a list of arguments, or an object of both")
	}
	if len(c) > maxCommand || strings.ContainsRune(c, 0) {
		return "", fmt.Errorf("a command may have %d bytes", maxCommand)
	}
	return c, nil
}

// ports reads the ports, which are numbers or "HOST:PORT".
func (f *File) ports(list []json.RawMessage) error {
	if len(list) > maxItems {
		return fmt.Errorf("forwardPorts may have %d ports", maxItems)
	}
	for _, item := range list {
		text := strings.Trim(string(item), `"`)
		if host, port, ok := strings.Cut(text, ":"); ok {
			if host != "localhost" && host != "127.0.0.1" {
				f.Ignored = append(f.Ignored, "forwardPorts."+clip(text))
				continue
			}
			text = port
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("forwardPorts: %q is not a port", clip(string(item)))
		}
		f.Ports = append(f.Ports, n)
	}
	return nil
}

var (
	validEnv     = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
	validTarget  = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)
	validFeature = pattern.New(`^[a-z0-9][A-Za-z0-9._/:@-]{0,255}$`)
	variable     = pattern.New(`\$\{([A-Za-z]+)(?::([^}:]*))?(?::([^}]*))?\}`)
)

// expand replaces variables. Those of the machine have no value but their default. ok is false if the text has one that only the
// container knows, which is left as it is.
func expand(s string) (_ string, ok bool) {
	ok = true
	return variable.ReplaceAllStringFunc(s, func(v string) string {
		m := variable.FindStringSubmatch(v)
		switch m[1] {
		case "localWorkspaceFolder", "containerWorkspaceFolder":
			return workDir
		case "localWorkspaceFolderBasename", "containerWorkspaceFolderBasename":
			return path.Base(workDir)
		case "localEnv", "env":
			return m[3]
		case "devcontainerId":
			return "ramus"
		}
		ok = false
		return v
	}), ok
}

func defaulted(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Builds reports whether the image has to be built.
func (f File) Builds() bool { return f.Build != nil || len(f.Features) > 0 }

// Config returns a devcontainer.json with the parts that the building of the image needs, and nothing else. It belongs to the place
// of the file.
func (f File) Config() []byte {
	config := map[string]any{}
	if f.Build == nil {
		config["image"] = f.Image
	} else {
		own := path.Dir(f.Path)
		build := map[string]any{"dockerfile": relative(own, f.Build.Dockerfile),
			"context": relative(own, f.Build.Context), "args": f.Build.Args}
		if f.Build.Target != "" {
			build["target"] = f.Build.Target
		}
		config["build"] = build
	}
	if len(f.Features) > 0 {
		config["features"] = f.Features
	}
	if len(f.Order) > 0 {
		config["overrideFeatureInstallOrder"] = f.Order
	}
	text, _ := json.Marshal(config) // values that came from JSON
	return text
}

// relative returns the path from a folder to another path of the repository.
func relative(folder, to string) string {
	if folder == "." {
		return to
	}
	return strings.Repeat("../", 1+strings.Count(folder, "/")) + to
}
