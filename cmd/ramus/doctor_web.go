package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/gateway/cert"
	"github.com/ramus-dev/ramus/gateway/web"
)

// certificateSoon is how long before its end a certificate is a finding.
const certificateSoon = 14 * 24 * time.Hour

// diagnoseWeb describes the certificate, the pages and the origin of content.
func diagnoseWeb(c Config, add func(what string, needed bool, says string, err error)) {
	switch {
	case c.TLSCert+c.TLSKey != "":
		says, err := diagnoseCertificate(c, time.Now())
		add("certificate", true, says, err)
	case len(c.ACME.Hosts) > 0:
		add("certificate", false, fmt.Sprintf("the server gets it by ACME for %q, and renews it by itself", c.ACME.Hosts), nil)
	}
	lacks := ""
	switch scripts, terminal := web.Built(); {
	case c.Web.JS == "off":
		lacks = "web.js is off: pages do not update by themselves, and have no terminal"
	case !scripts:
		lacks = "without scripts, so they do not update by themselves, and have no terminal; `make build` adds them"
	case !terminal:
		lacks = "with scripts, but without a terminal; `ramus shell` opens one"
	}
	if lacks == "" {
		add("pages", false, "with scripts and a terminal", nil)
	} else {
		add("pages", false, "", errors.New(lacks))
	}
	loopback := ""
	if c.URL == "" && c.Listen != "" {
		loopback = "http://" + c.Listen
	}
	content, err := contentURL(c, loopback)
	if err == nil && content == "" {
		err = errors.New("no second host name, so traces of browsers cannot be viewed; web.content_url names one")
	}
	add("content", c.Web.ContentURL != "", "the trace viewer is at "+content, err)
}

// diagnoseCertificate describes the end of the certificate in the configuration.
func diagnoseCertificate(c Config, now time.Time) (string, error) {
	chain, err := folder(c.TLSCert)
	if err != nil {
		return "", err
	}
	key, err := folder(c.TLSKey)
	if err != nil {
		return "", err
	}
	ends, err := cert.Ends(chain, key)
	if err != nil {
		return "", err
	}
	says := fmt.Sprintf("%s, until %s", c.TLSCert, ends.Format("2006-01-02 15:04"))
	switch left := ends.Sub(now); {
	case left <= 0:
		return "", fmt.Errorf("%s has ended at %s; put a new one there, which the server reads by itself", c.TLSCert,
			ends.Format("2006-01-02 15:04"))
	case left < certificateSoon:
		return says + fmt.Sprintf(", in %d days", int(left/(24*time.Hour))), nil
	}
	return says, nil
}
