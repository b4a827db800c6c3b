package model

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Keys has keys that are used in place of the configuration's. [secret.Store] implements it.
type Keys interface {
	// AgentKey returns the key that a user has for a provider. ok is false if there is none. With an error the call is
	// refused, and no other key is used.
	AgentKey(ctx context.Context, provider string, u secret.User) (key secret.AgentKey, ok bool, err error)
}

// key is the key of one call.
type key struct {
	value string
	oauth bool
	// credential is the id of the sealed credential, and whose says which one it is. Both are empty for the key of the
	// configuration.
	credential, whose string
	secrets           *redact.Secrets // the value
}

// keyFor returns the key for a guest. value is empty if there is none.
func (p *Proxy) keyFor(v *served, g guest) (key, *refusal) {
	if p.Keys != nil {
		k, ok, err := p.Keys.AgentKey(g.Context(), v.name, g.User())
		if err != nil {
			p.log().Warn("a credential for models cannot be used", "provider", v.name, "credential", k.ID, "owner",
				k.Owner, "err", err)
			return key{}, &refusal{kind: kindRefused,
				text: fmt.Sprintf("ramus: the credential %s of %s cannot be used: it is damaged, or its use cannot be recorded; its owner stores it again by `ramus secret set`",
					k.Name, k.Owner)}
		}
		if ok {
			set, _ := redact.New(map[string]string{"model key": k.Value})
			return key{k.Value, k.Kind == secret.KindOAuth, k.ID, fmt.Sprintf("%s of %s", k.Name, k.Owner), set}, nil
		}
	}
	return key{value: v.key, secrets: v.secrets}, nil
}

// correctedAt says where the key can be corrected.
func (k key) correctedAt(provider string) string {
	if k.whose != "" {
		return "its owner checks the credential " + k.whose
	}
	return fmt.Sprintf("the operator of ramus checks models.%s.api_key_env or models.%s.api_key_file", provider, provider)
}

// noKey is the refusal if nobody has a key for a provider.
func noKey(name string) refusal {
	return refusal{kind: kindNotFound,
		text: fmt.Sprintf("ramus: no key is configured for %s; the operator of ramus sets models.%s.api_key_env or models.%s.api_key_file, and a person stores a key by `ramus secret set --agent`",
			name, name, name)}
}

// Probe asks a provider for its list of models, and returns an error if the provider refuses the key or does not answer.
// The error has no words of the provider.
func (p *Proxy) Probe(ctx context.Context, name, value string, oauth bool) error {
	p.open.Do(p.start)
	v := p.providers[name]
	if v == nil {
		return fmt.Errorf("%s is not served here", name)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+v.models, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "ramus")
	if name == "anthropic" {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
	v.authorise(r.Header, value, oauth)
	resp, err := p.transport().RoundTrip(r)
	if err != nil {
		p.log().Warn("cannot ask a model provider", "provider", name, "err", err)
		return fmt.Errorf("%s cannot be reached", name)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxRefused)) // lets the connection be used again
	switch resp.StatusCode {
	case http.StatusOK, http.StatusTooManyRequests:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest:
		return fmt.Errorf("%s refuses it with status %d", name, resp.StatusCode)
	}
	return fmt.Errorf("%s answers with status %d", name, resp.StatusCode)
}

// bearer sets the token of OAuth in place of a key.
func bearer(h http.Header, token string) { h.Set("Authorization", "Bearer "+token) }

// oauthBeta is the feature without which Anthropic accepts no token of OAuth.
const oauthBeta = "oauth-2025-04-20"
