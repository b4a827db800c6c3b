package service

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/internal/bytesize"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/tasks/document"
)

// Service is a program next to a container.
type Service struct {
	// Name is its host name inside the container: a-z, 0-9 and -, at most 32.
	Name string `json:"name"`
	// Image is the image whose program runs, if the engine has images. Args are the arguments of its entry point. If Args is empty,
	// they are those of the image.
	Image string   `json:"image,omitempty"`
	Args  []string `json:"args,omitempty"`
	// Command is a shell command. It runs if the engine has no images, or Image is empty. An engine that has images, but does not know
	// their programs, runs it in Image.
	Command string `json:"command,omitempty"`
	// Env is the environment of the program and of Ready.
	Env map[string]string `json:"env,omitempty"`
	// Ready is a shell command that runs next to the program until it succeeds. If it is empty, the service is ready when it
	// listens at its ports.
	Ready string `json:"ready,omitempty"`
	// Timeout bounds the time until the service is ready. Zero means [DefaultTimeout].
	Timeout time.Duration `json:"timeout,omitempty"`
	// Ports are the ports that the container reaches. If there are none, they are those at which the service listens when it is ready.
	Ports []int `json:"ports,omitempty"`
	// Memory bounds its memory in bytes. Zero means the server's default.
	Memory int64 `json:"memory,omitempty"`
}

// Bounds on services.
const (
	MaxServices    = 8 // of one container, and of one step
	MaxPorts       = 16
	DefaultTimeout = time.Minute
	MaxTimeout     = 10 * time.Minute

	maxEnv     = 64
	maxValue   = 4 << 10 // bytes of a value of Env, and of an argument
	maxArgs    = 64
	maxCommand = 16 << 10
	maxImage   = 256
	leastPort  = 1024 // lower ones need privileges that a container does not have
	doorPort   = 7070
	leastBytes = 16 << 20
	mostBytes  = 64 << 30
)

// serviceKeys are the keys of a service in a file.
var serviceKeys = []string{"image", "args", "command", "env", "ready", "timeout", "port", "ports", "memory"}

// Keys returns the keys of a service in a file, for the JSON Schema of files with services.
func Keys() []string { return slices.Clone(serviceKeys) }

var (
	namePattern  = pattern.New(`^[a-z][a-z0-9-]{0,31}$`)
	imagePattern = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)
	envPattern   = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// ownNames are host names that containers have already.
var ownNames = []string{"localhost", "ramus"}

// ValidName reports whether a text can be the name of a service.
func ValidName(s string) bool {
	_, address := netip.ParseAddr(s)
	return namePattern.MatchString(s) && address != nil && !slices.Contains(ownNames, s)
}

// ValidImage reports whether a text can be the name of an image.
func ValidImage(s string) bool { return len(s) <= maxImage && imagePattern.MatchString(s) }

// Parse reads a mapping of names to services, in written order. Mistakes are reported to d. A nil v means no services.
func Parse(d *document.Document, v *document.Value) []Service {
	if v == nil || v.Kind == document.NullValue {
		return nil
	}
	if v.Kind != document.MapValue {
		d.At(v, "services must be a mapping of names to services, not %s", document.KindOf(v))
		return nil
	}
	if len(v.Fields) > MaxServices {
		d.At(v, "there may be %d services, these are %d", MaxServices, len(v.Fields))
		return nil
	}
	var list []Service
	for _, f := range v.Fields {
		if !ValidName(f.Key) {
			d.Problem(f.Line, f.Column,
				"the name of a service must be a host name of a-z, 0-9 and -, at most 32, not %q", f.Key)
		}
		if !d.Object(f.Value, "a service", serviceKeys) {
			continue
		}
		list = append(list, parseService(d, f.Key, f.Value))
	}
	return list
}

func parseService(d *document.Document, name string, v *document.Value) Service {
	s := Service{Name: name}
	s.Image = ParseImage(d, v.Get("image"))
	s.Command = bounded(d, v.Get("command"), "command", maxCommand)
	s.Ready = bounded(d, v.Get("ready"), "ready", maxCommand)
	if s.Image == "" && s.Command == "" && v.Get("image") == nil && v.Get("command") == nil {
		d.At(v, "a service needs image, or command on machines without images")
	}
	args := d.List(v.Get("args"), "args")
	if len(args) > maxArgs {
		d.At(v.Get("args"), "a service may have %d arguments", maxArgs)
		args = nil
	}
	for _, item := range args {
		s.Args = append(s.Args, bounded(d, item, "an argument", maxValue))
	}
	if a := v.Get("args"); a != nil && v.Get("image") == nil {
		d.At(a, "args are those of an image; a command has its own")
	}
	s.Env = parseEnv(d, v.Get("env"))
	s.Ports = parsePorts(d, v)
	s.Timeout = parseTimeout(d, v.Get("timeout"))
	s.Memory = parseMemory(d, v.Get("memory"))
	return s
}

// ParseImage reads the name of an image. Returns "" if v is nil.
func ParseImage(d *document.Document, v *document.Value) string {
	image := d.Text(v, "image")
	if v != nil && v.Kind == document.StringValue && !ValidImage(image) {
		d.At(v, "%q cannot be the name of an image", image)
		return ""
	}
	return image
}

func bounded(d *document.Document, v *document.Value, what string, most int) string {
	s := d.Text(v, what)
	switch {
	case v == nil || v.Kind != document.StringValue:
	case len(s) > most:
		d.At(v, "%s has %d bytes; it may have %d", what, len(s), most)
		return ""
	case s == "" && what != "an argument":
		d.At(v, "%s is empty", what)
	}
	return s
}

func parseEnv(d *document.Document, v *document.Value) map[string]string {
	if v == nil || v.Kind == document.NullValue {
		return nil
	}
	if v.Kind != document.MapValue {
		d.At(v, "env must be a mapping of names to values, not %s", document.KindOf(v))
		return nil
	}
	if len(v.Fields) > maxEnv {
		d.At(v, "env may have %d variables, this one has %d", maxEnv, len(v.Fields))
		return nil
	}
	env := make(map[string]string, len(v.Fields))
	for _, f := range v.Fields {
		if !envPattern.MatchString(f.Key) {
			d.Problem(f.Line, f.Column, "%q cannot be the name of a variable", f.Key)
			continue
		}
		switch f.Value.Kind {
		case document.StringValue, document.NumberValue, document.BoolValue:
			env[f.Key] = f.Value.Text
		case document.NullValue:
			env[f.Key] = ""
		default:
			d.At(f.Value, "the value of %s must be text, not %s", f.Key, document.KindOf(f.Value))
		}
		if len(env[f.Key]) > maxValue {
			d.At(f.Value, "the value of %s has %d bytes; it may have %d", f.Key, len(env[f.Key]), maxValue)
			delete(env, f.Key)
		}
	}
	return env
}

func parsePorts(d *document.Document, v *document.Value) []int {
	items := d.List(v.Get("ports"), "ports")
	if one := v.Get("port"); one != nil {
		if v.Get("ports") != nil {
			d.At(one, "a service has port or ports, not both")
		}
		items = []*document.Value{one}
	}
	if len(items) > MaxPorts {
		d.At(v.Get("ports"), "a service may have %d ports", MaxPorts)
		return nil
	}
	var ports []int
	for _, item := range items {
		port := d.Integer(item, "a port", leastPort, 65535, 0)
		switch {
		case port == 0:
		case port == doorPort:
			d.At(item, "port %d is the container's own", doorPort)
		case slices.Contains(ports, port):
			d.At(item, "port %d is there twice", port)
		default:
			ports = append(ports, port)
		}
	}
	return ports
}

func parseTimeout(d *document.Document, v *document.Value) time.Duration {
	text := d.Text(v, "timeout")
	if v == nil || v.Kind != document.StringValue {
		return 0
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout < time.Second || timeout > MaxTimeout {
		d.At(v, "timeout must be a time from 1s to %v, such as 90s, not %q", MaxTimeout, text)
		return 0
	}
	return timeout
}

func parseMemory(d *document.Document, v *document.Value) int64 {
	text := d.Text(v, "memory")
	if v == nil || v.Kind != document.StringValue {
		return 0
	}
	n, err := bytesize.Parse(text)
	if err != nil || n < leastBytes || n > mostBytes {
		d.At(v, "memory must be a size from 16MiB to 64GiB, not %q", text)
		return 0
	}
	return n
}
