package browser

import "strings"

// isCredentialHeader reports whether the value of a header is a credential.
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
	for _, suffix := range []string{"-token", "-secret", "-password", "-key", "-jwt", "-signature", "-authorization",
		"-cookie", "-credential", "-credentials", "-session", "-session-id"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// isCredentialField reports whether the value of a field of a form or a JSON object is a credential.
func isCredentialField(name string) bool {
	name = plainName(name)
	switch name {
	case "pwd", "pass", "passwd", "pin", "otp", "totp", "jwt", "sessionid", "sessid", "phpsessid", "jsessionid",
		"authorization", "samlresponse", "csrf", "xsrf", "cvv", "cvc":
		return true
	}
	for _, part := range []string{"password", "passphrase", "passcode", "secret", "credential", "privatekey", "apikey",
		"accesskey", "csrfmiddleware"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.HasSuffix(name, "token")
}

// isCredentialParameter is like isCredentialField for a URL's query, in which a few more short names are used for
// credentials.
func isCredentialParameter(name string) bool {
	switch plainName(name) {
	case "key", "sig", "signature", "code", "sid", "auth", "session", "assertion", "ticket", "expiressignature":
		return true
	}
	return isCredentialField(name)
}

// plainName returns a name without separators of its words, so that access_token, accessToken and Access-Token are
// equal.
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
