package environment

import (
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/tasks/document"
)

// Service is a program next to a container, such as a database. Commands in the container reach it by its name. It ends
// with the container.
type Service struct {
	// Image is the image that it runs in, for engines with images. Command is its command line by sh -c. With an Image
	// it may be empty, for the image's own. Without one it is a program of the machine.
	Image   string            `json:"image,omitempty"`
	Command string            `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Ready is a command line that succeeds once the service answers. Empty means that Ports accept connections.
	Ready string `json:"ready,omitempty"`
	// Timeout bounds the time until then. 0 means a default.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Ports lists the ports at which it listens.
	Ports []int `json:"ports,omitempty"`
}

// MaxServices bounds the services of one container.
const MaxServices = 8

var serviceKeys = []string{"image", "command", "env", "ready", "timeout", "ports"}

// ReadServices reads a mapping of names to services. what names it in mistakes, which are added to d. A missing v means
// none.
func ReadServices(d *document.Document, v *document.Value, what string) map[string]Service {
	r := &reader{Document: d, places: map[string]*document.Value{}}
	return r.services(v, what)
}

func (r *reader) services(v *document.Value, at string) map[string]Service {
	r.places[at] = v
	if v == nil || v.Kind == document.NullValue {
		return nil
	}
	if v.Kind != document.MapValue {
		r.At(v, "%s must be a mapping of names to services, not %s", at, document.KindOf(v))
		return nil
	}
	if len(v.Fields) > MaxServices {
		r.At(v, "%s has %d services; at most %d are possible", at, len(v.Fields), MaxServices)
		return nil
	}
	list := make(map[string]Service, len(v.Fields))
	for _, f := range v.Fields {
		if !validName.MatchString(f.Key) {
			r.Problem(f.Line, f.Column, "%s: a service's name is a host name of lower-case letters, digits and single hyphens, at most 40, not %q", at, f.Key)
			continue
		}
		list[f.Key] = r.service(f.Value, at+"."+f.Key)
	}
	return list
}

func (r *reader) service(v *document.Value, at string) (s Service) {
	if !r.Object(v, at, serviceKeys) {
		return s
	}
	r.places[at] = v
	s.Image = r.image(v.Get("image"), at+".image")
	s.Command = r.command(v.Get("command"), at+".command")
	s.Env = r.env(v.Get("env"), at+".env")
	s.Ready = r.command(v.Get("ready"), at+".ready")
	s.Timeout = r.duration(v.Get("timeout"), at+".timeout")
	ports := r.list(v.Get("ports"), at+".ports", 8)
	for i, p := range ports {
		s.Ports = append(s.Ports, r.integer(p, fmt.Sprintf("%s.ports.%d", at, i), 1, 65535))
	}
	if s.Image == "" && s.Command == "" {
		r.At(v, "%s needs an image, or a command", at)
	}
	return s
}
