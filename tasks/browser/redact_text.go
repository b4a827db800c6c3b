package browser

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// label matches the replacement of a secret. Other rules may match it as a part, but must not split it.
const label = `\[secret [^\]\n]{0,100}\]`

var (
	// parameterRule matches a parameter of a URL, also of a relative one, and after an escaped ampersand in HTML.
	parameterRule = pattern.New(`([?&#;]|&amp;)([A-Za-z0-9_.\-\[\]$]{1,60})=((?:` + label + "|[^&\\s\"'<>#;`\\\\])+)")
	// userinfoRule matches user:password@ of a URL.
	userinfoRule = pattern.New(`([a-zA-Z][a-zA-Z0-9+.\-]{1,20}://)((?:` + label + "|[^/?#\\s\"'<>@`])+)@")
	bearerRule   = pattern.New(`(?i)\b(bearer|basic|negotiate)([ +]|%20)((?:` + label + `|[A-Za-z0-9._~+/=\-]){8,})`)
	// jwtRule matches a JSON Web Token, whose first two parts are JSON objects.
	jwtRule = pattern.New(`\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{4,}\.[A-Za-z0-9_\-]*`)
	// headerRule matches a header in a log, to the end of its line or string.
	headerRule = pattern.New(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-(?:csrf|xsrf|auth)-token)(["']?[ \t]*:[ \t]*["']?)([^\r\n"']+)`)
	// passwordTag matches a password field, and valueOfTag its value.
	passwordTag  = pattern.New(`(?is)<input\b[^>]*?\b(?:type\s*=\s*\\?["']?password|autocomplete\s*=\s*\\?["']?(?:current-password|new-password|one-time-code))[^>]*>`)
	valueOfTag   = pattern.New(`(?is)(\svalue\s*=\s*)(\\?"[^"]*"|\\?'[^']*'|[^\s>"']+)`)
	multipartRow = pattern.New(`(?is)(\bform-data;[^\r\n]{0,200}?\bname="([^"\r\n]{1,200})"[^\r\n]*\r?\n(?:[^\r\n]+\r?\n){0,10}\r?\n)(.*?)(\r?\n--)`)
	oneLabel     = pattern.New(`^(?:` + label + `|\[redacted\])$`)
)

// isLabel reports whether a text consists only of the replacement of a secret.
func isLabel(text string) bool { return oneLabel.MatchString(text) }

// text cleans a text of any kind. It replaces known values first, because a rule might match a part of one.
func (s *scrub) text(t string) string {
	if t == "" {
		return t
	}
	return s.rules(s.exact(t))
}

// exact replaces known values.
func (s *scrub) exact(t string) string {
	if s.lesson != nil {
		return t // the first pass needs the values
	}
	clean := s.known.String(t)
	if clean != t {
		f := s.secrets.Finder()
		_, _ = f.Write([]byte(t)) // Write never fails
		for _, name := range f.Names() {
			s.found[name] = true
		}
	}
	return clean
}

// rules replaces the parts of a text that look like a credential.
func (s *scrub) rules(t string) string {
	if strings.Contains(t, "://") && strings.Contains(t, "@") {
		t = replace(userinfoRule, t, func(m []string) string {
			user, password, ok := strings.Cut(m[2], ":")
			if !ok && !looksSecret(user) {
				return m[0] // git@host
			}
			return m[1] + s.hide("password", cmp.Or(password, user), likely) + "@"
		})
	}
	if strings.Contains(t, "=") && strings.ContainsAny(t, "?&#;") {
		t = replace(parameterRule, t, func(m []string) string {
			if !isCredentialParameter(m[2]) {
				return m[0]
			}
			return m[1] + m[2] + "=" + s.hide("parameter "+m[2], m[3], likely)
		})
	}
	if lower := strings.ToLower(t); containsAny(lower, "authorization", "cookie", "x-api-key", "-token") {
		t = replace(headerRule, t, func(m []string) string {
			return m[1] + m[2] + s.header(m[1], m[3])
		})
	} else if !containsAny(lower, "bearer", "basic", "negotiate") {
		return s.forms(t)
	}
	t = replace(bearerRule, t, func(m []string) string {
		if strings.EqualFold(m[1], "basic") && !strings.ContainsAny(m[3], "0123456789=") {
			return m[0] // "basic information" is not a credential
		}
		return m[1] + m[2] + s.hide("authorization", m[3], likely)
	})
	return s.forms(t)
}

// forms applies the rules for filled-in forms and for tokens.
func (s *scrub) forms(t string) string {
	if strings.Contains(t, "eyJ") {
		t = jwtRule.ReplaceAllStringFunc(t, func(m string) string { return s.hide("token", m, likely) })
	}
	if strings.Contains(t, "password") || strings.Contains(t, "one-time-code") {
		t = passwordTag.ReplaceAllStringFunc(t, func(tag string) string {
			return replace(valueOfTag, tag, func(m []string) string {
				quote := ""
				for _, q := range []string{`\"`, `"`, `\'`, `'`} {
					if strings.HasPrefix(m[2], q) {
						quote = q
						break
					}
				}
				inner := strings.TrimSuffix(strings.TrimPrefix(m[2], quote), quote)
				return m[1] + quote + s.hide("password", inner, certain) + quote
			})
		})
	}
	if strings.Contains(t, "form-data") {
		t = replace(multipartRow, t, func(m []string) string {
			if !isCredentialField(m[2]) {
				return m[0]
			}
			return m[1] + s.hide("field "+m[2], m[3], likely) + m[4]
		})
	}
	return t
}

func containsAny(t string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(t, part) })
}

// replace is like [regexp.Regexp.ReplaceAllStringFunc], but passes the groups of each match.
func replace(rule *pattern.Regexp, t string, with func(groups []string) string) string {
	var b strings.Builder
	end := 0
	for _, m := range rule.FindAllStringSubmatchIndex(t, -1) {
		groups := make([]string, len(m)/2)
		for i := range groups {
			if m[2*i] >= 0 {
				groups[i] = t[m[2*i]:m[2*i+1]]
			}
		}
		if b.Len() == 0 && end == 0 {
			b.Grow(len(t))
		}
		b.WriteString(t[end:m[0]])
		b.WriteString(with(groups))
		end = m[1]
	}
	if end == 0 {
		return t
	}
	b.WriteString(t[end:])
	return b.String()
}
