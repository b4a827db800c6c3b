package browser

import "strings"

// isCredentialHeader tells whether a header's value is one that nobody else may see.
func isCredentialHeader(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "cookie", "set-cookie", "cookie2", "set-cookie2", "authorization", "proxy-authorization", "authentication-info",
		"x-api-key", "api-key", "apikey", "x-auth", "x-session", "x-jwt", "token", "secret":
		return true
	}
	for _, prefix := range []string{"x-csrf", "x-xsrf", "csrf-", "xsrf-", "x-auth-", "x-session-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{"-token", "-secret", "-password", "-key", "-jwt", "-signature", "-authorization", "-cookie", "-credential", "-credentials", "-session", "-session-id"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// isCredentialField tells whether a field of a form or a JSON object is one.
func isCredentialField(name string) bool {
	name = plainName(name)
	switch name {
	case "pwd", "pass", "passwd", "pin", "otp", "totp", "jwt", "sessionid", "sessid", "phpsessid", "jsessionid",
		"authorization", "samlresponse", "csrf", "xsrf", "cvv", "cvc":
		return true
	}
	for _, part := range []string{"password", "passphrase", "passcode", "secret", "credential", "privatekey", "apikey", "accesskey", "csrfmiddleware"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.HasSuffix(name, "token")
}

// isCredentialParameter is isCredentialField for a URL's query, where a few short names
// mean more than they do elsewhere.
func isCredentialParameter(name string) bool {
	switch plainName(name) {
	case "key", "sig", "signature", "code", "sid", "auth", "session", "assertion", "ticket", "expiressignature":
		return true
	}
	return isCredentialField(name)
}

// plainName is a name without what programs put between its words: access_token,
// accessToken and Access-Token are one.
func plainName(name string) string {
	if len(name) > 200 {
		name = name[:200]
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '-', '_', '.', ' ', '[', ']', '$':
			return -1
		}
		return r
	}, strings.ToLower(name))
}
