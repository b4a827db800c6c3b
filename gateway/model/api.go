package model

import (
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// api describes the API of one provider.
type api struct {
	url string // the provider's own address
	// version is the beginning of every path. People write it at the end of the base URL as well, from which it is
	// removed.
	version   string
	endpoints []endpoint
	// headers of a request that are forwarded, in addition to its content type
	headers []string
	// models is the path of the list of models, which accepts a key and does nothing.
	models string
	// authorise sets the key, or the token of OAuth, in the provider's header.
	authorise func(h http.Header, key string, oauth bool)
	// read adds one JSON object of an answer to the tally. It is the whole answer, or the data of one event of a
	// stream.
	read func(t *tally, object []byte)
	// format returns a refusal in the provider's format.
	format func(r refusal) any
}

// endpoint is one allowed request to a provider. All others are refused, because a container could otherwise use the
// server's key to read the organisation's files, or to start work that nobody counts.
type endpoint struct {
	method string
	// pattern matches the whole path after the provider's name. Its first group is the path at the provider, and its
	// second, if it has one, the name of the model.
	pattern *pattern.Regexp
	query   []string // parameters that are forwarded
	counted counting
}

// counting selects the tokens of a call that are counted.
type counting int

const (
	countNothing counting = iota // no model is used
	countInput                   // the answer has no text
	countBoth
)

// modelName matches names of models in a path. They have no character with a meaning in URLs.
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
		headers: []string{"Anthropic-Version", "Anthropic-Beta"},
		models:  "/v1/models",
		authorise: func(h http.Header, key string, oauth bool) {
			if oauth {
				bearer(h, key)
				h.Add("Anthropic-Beta", oauthBeta)
				return
			}
			h.Set("X-Api-Key", key)
		},
		read: readAnthropic,
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
		// Codex's own header, which says that the tools are in the conversation.
		headers:   []string{"OpenAI-Beta", "X-Openai-Internal-Codex-Responses-Lite"},
		models:    "/models",
		authorise: func(h http.Header, key string, _ bool) { bearer(h, key) },
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
		models: "/v1beta/models",
		authorise: func(h http.Header, key string, oauth bool) {
			if oauth {
				bearer(h, key)
				return
			}
			h.Set("X-Goog-Api-Key", key)
		},
		read: readGemini,
		format: func(r refusal) any {
			return object{"error": object{"code": r.status("gemini"), "message": r.text, "status": r.kind.gemini}}
		},
	},
}

type object map[string]any

// find returns the endpoint of a request. refusal is nil if there is one.
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
	return e, "", "", &refusal{kind: kindNotFound,
		text: "ramus: no such endpoint here; a container is served those of models only: " + a.list()}
}

// list returns the endpoints, for people.
func (a *api) list() string {
	var names []string
	for _, e := range a.endpoints {
		s := strings.NewReplacer("^", "", "$", "", "(?:/v1)?", "", "(?:beta|alpha)?", "beta", modelName, "MODEL", "(?:",
			"", "(", "", ")", "").Replace(e.pattern.String())
		names = append(names, e.method+" "+s)
	}
	return strings.Join(names, ", ")
}
