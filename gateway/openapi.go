package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/pattern"
)

type object = map[string]any

// openAPI returns the OpenAPI 3.1 document of the table. It panics if a type in the table has no schema, which is a
// fault of the program that a test finds.
func (s *Server) openAPI() []byte {
	rows := slices.DeleteFunc(s.routes(), func(row route.Route) bool { return !isDescribed(row.Access) })
	schemas := newSchemas(rows)
	paths := map[string]object{}
	for _, row := range rows {
		path := strings.NewReplacer("...}", "}", "{$}", "").Replace(row.Pattern)
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(row.Method)] = operation(row, schemas)
	}
	schemas.refer(reflect.TypeFor[route.Problem]())
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "ramus", "version": s.Version,
			"description": "A name is one path segment; slashes inside it are written %2F. " +
				"Runs and callers may be named by any part that is unique. Durations are nanoseconds where a field's name has no unit. " +
				"Repositories are at /NAME.git for git clients.",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers": []object{{"url": "/"}},
		"paths":   paths,
		"components": object{
			"schemas": schemas.list,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
				"basic":  object{"type": "http", "scheme": "basic", "description": "The password is the token."},
			},
			"responses": object{"Problem": object{
				"description": "What went wrong (RFC 9457)",
				"content":     object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
			}},
		},
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("the OpenAPI document: %v", err))
	}
	return append(b, '\n')
}

// isDescribed reports whether the document has the routes of an access.
func isDescribed(a route.Access) bool {
	switch a {
	case route.AccessGit, route.AccessPreview: // git's own protocol and applications
		return false
	case route.AccessPage, route.AccessSocket: // for people with a browser
		return false
	}
	return true
}

var wildcard = pattern.New(`\{(\w+)(?:\.\.\.)?\}`)

func operation(row route.Route, schemas schemas) object {
	status := http.StatusOK
	answer := object{"description": "Done"}
	if row.Response != nil || row.Media != "" {
		media := row.Media
		if media == "" {
			media = "application/json"
		}
		schema := object{"type": "string"}
		if row.Response != nil {
			schema = schemas.refer(reflect.TypeOf(row.Response))
		}
		if row.Media == route.MediaSSE || row.Media == route.MediaLines {
			answer["description"] = "A stream; the schema is that of one event or line"
		}
		answer["content"] = object{strings.TrimSuffix(media, "; charset=utf-8"): object{"schema": schema}}
	}
	op := object{
		"operationId": operationID(row),
		"summary":     row.Summary,
		"x-access":    row.Access,
		"responses": object{
			strconv.Itoa(status): answer,
			"default":            object{"$ref": "#/components/responses/Problem"},
		},
	}
	if row.Access == route.AccessPublic {
		op["security"] = []object{}
	} else {
		op["security"] = []object{{"bearer": []string{}}, {"basic": []string{}}}
	}
	if parameters := parameters(row); len(parameters) > 0 {
		op["parameters"] = parameters
	}
	if row.Request != nil {
		op["requestBody"] = object{"required": true, "content": object{
			"application/json": object{"schema": schemas.refer(reflect.TypeOf(row.Request))}}}
	}
	if row.Form != nil {
		op["requestBody"] = object{"required": true, "content": object{
			"multipart/form-data": object{"schema": formSchema(reflect.TypeOf(row.Form))}}}
	}
	return op
}

// formSchema returns the schema of a form with files.
func formSchema(t reflect.Type) object {
	schema := mustSchema(t)
	fields := object{}
	for name, field := range schema.Properties {
		fields[name] = field
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type != reflect.TypeFor[[]byte]() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = object{"type": "array", "description": f.Tag.Get("jsonschema"),
			"items": object{"type": "string", "format": "binary"}}
	}
	return object{"type": "object", "properties": fields, "required": schema.Required}
}

// operationID returns an id made from method and path, such as "get_api_runs_run_events".
func operationID(route route.Route) string {
	words := strings.FieldsFunc(strings.ToLower(route.Method)+route.Pattern, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "_")
}

func parameters(route route.Route) []object {
	var list []object
	for _, m := range wildcard.FindAllStringSubmatch(route.Pattern, -1) {
		list = append(list, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	if route.Query == nil {
		return list
	}
	schema := mustSchema(reflect.TypeOf(route.Query))
	for _, name := range schema.PropertyOrder {
		p := schema.Properties[name]
		doc := p.Description
		p.Description = ""
		list = append(list, object{"name": name, "in": "query", "description": doc, "schema": p})
	}
	return list
}

// schemas are the schemas of the named types that routes take and return.
type schemas struct {
	list   object
	shared map[string]bool // the names of types of several packages
}

// newSchemas returns the schemas of a table of routes, which are empty yet.
func newSchemas(routes []route.Route) schemas {
	s := schemas{list: object{}, shared: make(map[string]bool)}
	types := make(map[string]reflect.Type)
	for _, row := range routes {
		for _, v := range []any{row.Request, row.Response} {
			if v == nil {
				continue
			}
			t := reflect.TypeOf(v)
			if t.Kind() == reflect.Slice {
				t = t.Elem()
			}
			if other, ok := types[t.Name()]; ok && other != t {
				s.shared[t.Name()] = true
			}
			types[t.Name()] = t
		}
	}
	return s
}

// refer returns a reference to the schema of a type. It adds the schema of a named type. The name is that of the type, with that
// of its package before it if a type of another package has the same one.
func (s schemas) refer(t reflect.Type) object {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		return object{"type": "array", "items": s.refer(t.Elem())}
	}
	name := t.Name()
	if t == reflect.TypeFor[json.RawMessage]() || name == "" {
		return object{"type": "object"}
	}
	if s.shared[name] {
		pkg := path.Base(t.PkgPath())
		name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	if _, there := s.list[name]; !there {
		s.list[name] = mustSchema(t)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func mustSchema(t reflect.Type) *jsonschema.Schema {
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: route.TypeSchemas, IgnoreInvalidTypes: true})
	if err != nil {
		panic(fmt.Sprintf("no schema of %v: %v", t, err))
	}
	return schema
}
