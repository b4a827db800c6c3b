package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
)

// problemData is the data of the page of a problem.
type problemData struct {
	Problem *route.Problem
	Title   string
	// Again is set if the same request may succeed later.
	Again bool
	// Back is the page that the person came from, a path of this server, or "".
	Back string
}

// Problem answers a browser with the page of a problem.
func (api *API) Problem(c *route.Call, p *route.Problem) error {
	sh := api.parts().shell
	shown := *p
	shown.Detail, shown.Hint = render.ClipClean(p.Detail, 2000), render.ClipClean(p.Hint, 1000)
	d := problemData{Problem: &shown, Title: problemTitle(p), Again: p.Status == http.StatusTooManyRequests ||
		p.Status >= 500}
	if from := c.R.Header.Get("Referer"); c.R.Method == http.MethodPost && strings.Contains(from, "://"+c.R.Host+"/") {
		_, path, _ := strings.Cut(from, "://"+c.R.Host)
		d.Back = path
	}
	return sh.write(c, &Page{Title: d.Title, Template: "problem", Data: d, Status: p.Status, Layout: "narrow",
		Bare: c.Who.Nobody()})
}

// problemTitle returns the headline of a problem.
func problemTitle(p *route.Problem) string {
	switch p.Status {
	case http.StatusUnauthorized:
		return "Sign in first"
	case http.StatusForbidden:
		return "You may not do this"
	case http.StatusNotFound:
		return "There is nothing here"
	case http.StatusMethodNotAllowed:
		return "This page takes no form"
	case http.StatusConflict:
		return "Not in this state"
	case http.StatusRequestEntityTooLarge:
		return "Too large"
	case http.StatusUnprocessableEntity:
		return "The file has mistakes"
	case http.StatusTooManyRequests:
		return "Too much at once"
	case http.StatusServiceUnavailable:
		return "Not available now"
	case http.StatusGatewayTimeout:
		return "This took too long"
	case http.StatusInsufficientStorage:
		return "The disk is full"
	}
	if p.Status >= 500 {
		return "Something went wrong"
	}
	return "This cannot be done"
}

// fieldProblem returns the text of an error for a form. It returns false for an error that is not a mistake of the form.
func fieldProblem(err error, who route.Who) (string, bool) {
	p := route.AsProblem(err, who)
	var known *route.Problem
	if p.Status >= 500 && !errors.As(err, &known) {
		return "", false
	}
	text := sentence(render.ClipClean(p.Detail, 1000))
	if p.Hint != "" {
		text += " " + sentence(render.ClipClean(p.Hint, 500))
	}
	return text, true
}
