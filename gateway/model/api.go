package model

import (
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// api is how one provider is spoken to.
type api struct {
	url string // the provider's own
	// version is what every path begins with already; people write it at the end
	// of the base URL all the same, and there it is taken off.
	version   string
	endpoints []endpoint
	// headers of a request that are passed on, beside its content type.
	headers []string
	// authorise puts the key where the provider wants it.
	authorise func(h http.Header, key string)
	// read makes the tally of one JSON object of an answer: the whole of it, or
	// the data of one event of a stream.
	read func(t *tally, object []byte)
	// format writes a refusal as the provider would.
	format func(r refusal) any
}

// endpoint is one thing that may be asked of a provider. Everything else may not:
// with the server's key a container could otherwise read the organisation's
// files, or have work done that nobody counts.
type endpoint struct {
	method string
	// pattern of the whole path below the provider's name. Its first group is the
	// path at the provider; the second, where there is one, the model's name.
	pattern *pattern.Regexp
	query   []string // parameters that are passed on
	counted counting
}

// counting says what of a call is counted.
type counting int

const (
	countNothing counting = iota // no model works
	countInput                   // there is no text in the answer
	countBoth
)

// model names as they may stand in a path: nothing that a URL gives a meaning to.
const modelName = `([A-Za-z0-9][A-Za-z0-9._:-]{0,127})`

func anchored(s string) *pattern.Regexp {
	return pattern.New(`^` + strings.ReplaceAll(s, "MODEL", modelName) + `$`)
}

var apis = map[string]*api{
	// https://docs.anthropic.com/en/api/overview
	"anthropic": {
		url: "https://api.anthropic.com", version: "/v1",
		endpoints: []endpoint{
			{"POST", anchored(`(/v1/messages)`), []string{"beta"}, countBoth},
			{"POST", anchored(`(/v1/messages/count_tokens)`), []string{"beta"}, countNothing},
			{"GET", anchored(`(/v1/models)`), []string{"limit", "after_id", "before_id"}, countNothing},
			{"GET", anchored(`(/v1/models/MODEL)`), nil, countNothing},
		},
		headers:   []string{"Anthropic-Version", "Anthropic-Beta"},
		authorise: func(h http.Header, key string) { h.Set("X-Api-Key", key) },
		read:      readAnthropic,
		format: func(r refusal) any {
			return object{"type": "error", "error": object{"type": r.kind.anthropic, "message": r.text}}
		},
	},
	// https://platform.openai.com/docs/api-reference
	"openai": {
		url: "https://api.openai.com/v1",
		endpoints: []endpoint{
			{"POST", anchored(`(?:/v1)?(/chat/completions)`), nil, countBoth},
			{"POST", anchored(`(?:/v1)?(/responses)`), nil, countBoth},
			{"POST", anchored(`(?:/v1)?(/responses/compact)`), nil, countBoth},
			{"POST", anchored(`(?:/v1)?(/embeddings)`), nil, countInput},
			{"GET", anchored(`(?:/v1)?(/models)`), nil, countNothing},
			{"GET", anchored(`(?:/v1)?(/models/MODEL)`), nil, countNothing},
		},
		// Codex' own says that the tools stand in the conversation.
		headers:   []string{"OpenAI-Beta", "X-Openai-Internal-Codex-Responses-Lite"},
		authorise: func(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) },
		read:      readOpenAI,
		format: func(r refusal) any {
			return object{"error": object{"message": r.text, "type": r.kind.openai, "param": nil, "code": r.kind.openai}}
		},
	},
	// https://ai.google.dev/api
	"gemini": {
		url: "https://generativelanguage.googleapis.com",
		endpoints: []endpoint{
			{"POST", anchored(`(/v1(?:beta|alpha)?/models/MODEL:generateContent)`), nil, countBoth},
			{"POST", anchored(`(/v1(?:beta|alpha)?/models/MODEL:streamGenerateContent)`), []string{"alt"}, countBoth},
			{"POST", anchored(`(/v1(?:beta|alpha)?/models/MODEL:embedContent)`), nil, countInput},
			{"POST", anchored(`(/v1(?:beta|alpha)?/models/MODEL:batchEmbedContents)`), nil, countInput},
			{"POST", anchored(`(/v1(?:beta|alpha)?/models/MODEL:countTokens)`), nil, countNothing},
			{"GET", anchored(`(/v1(?:beta|alpha)?/models)`), []string{"pageSize", "pageToken"}, countNothing},
			{"GET", anchored(`(/v1(?:beta|alpha)?/models/MODEL)`), nil, countNothing},
		},
		authorise: func(h http.Header, key string) { h.Set("X-Goog-Api-Key", key) },
		read:      readGemini,
		format: func(r refusal) any {
			return object{"error": object{"code": r.status("gemini"), "message": r.text, "status": r.kind.gemini}}
		},
	},
}

type object map[string]any

// find tells which endpoint a request is for; refusal is nil when there is one.
func (a *api) find(method, path string) (e endpoint, at, model string, no *refusal) {
	for _, e := range a.endpoints {
		m := e.pattern.FindStringSubmatch(path)
		if m == nil {
			continue
		}
		if e.method != method {
			return e, "", "", &refusal{kind: kindMethod, text: "ramus: this endpoint wants " + e.method}
		}
		if len(m) > 2 {
			model = m[2]
		}
		return e, m[1], model, nil
	}
	return e, "", "", &refusal{kind: kindNotFound, text: "ramus: no such endpoint here; a container is served those of models only: " + a.list()}
}

// list names the endpoints, for people.
func (a *api) list() string {
	var names []string
	for _, e := range a.endpoints {
		s := strings.NewReplacer("^", "", "$", "", "(?:/v1)?", "", "(?:beta|alpha)?", "beta", modelName, "MODEL", "(?:", "", "(", "", ")", "").Replace(e.pattern.String())
		names = append(names, e.method+" "+s)
	}
	return strings.Join(names, ", ")
}
