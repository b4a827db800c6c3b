package main

import (
	"errors"
	"strings"

	"github.com/mxschmitt/playwright-go"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// listen registers handlers for the page's events. Playwright calls them one at a time, except for dialogs. They must
// not wait for an answer of the driver.
func (v *view) listen() {
	v.browser.OnDisconnected(func(playwright.Browser) { v.stop(errBrowser) })
	v.page.OnClose(func(playwright.Page) {
		if !v.isClosing() {
			v.stop(errClosed)
		}
	})
	v.page.OnCrash(func(playwright.Page) { v.stop(errCrashed) })
	v.context.OnConsole(v.heardConsole)
	v.context.OnWebError(v.heardError)
	v.context.OnDialog(v.heardDialog)
	v.context.OnPage(v.heardPopup)
	v.context.OnRequest(v.heardRequest)
	v.context.OnResponse(v.heardResponse)
	v.context.OnRequestFailed(v.heardFailure)
	v.page.OnDownload(func(d playwright.Download) { v.note("download", d.SuggestedFilename(), d.URL()) })
}

func (v *view) isClosing() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closing
}

// note writes a line of ramus into the console.
func (v *view) note(kind, text, url string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closing {
		v.console.add(kind, text, url, 0)
	}
}

func (v *view) heardConsole(m playwright.ConsoleMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing {
		return
	}
	var at playwright.ConsoleMessageLocation
	if l := m.Location(); l != nil {
		at = *l
	}
	v.console.add(m.Type(), m.Text(), at.URL, at.LineNumber)
	if m.Type() == "error" {
		v.faults.addConsole(consoleError{text: m.Text(), url: at.URL, position: at.LineNumber > 0 || at.ColumnNumber > 0})
	}
}

func (v *view) heardError(e playwright.WebError) {
	text := plainError(e.Error())
	var pe *playwright.Error
	if errors.As(e.Error(), &pe) {
		text = pe.Message
		if pe.Name != "" && pe.Name != "Error" {
			text = pe.Name + ": " + pe.Message
		}
	}
	var at playwright.WebErrorLocation
	if l := e.Location(); l != nil {
		at = *l
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing {
		return
	}
	v.console.add("pageerror", text, at.URL, at.Line)
	v.faults.addPage(text)
}

// heardDialog runs in a goroutine of its own.
func (v *view) heardDialog(d playwright.Dialog) {
	v.mu.Lock()
	v.dialogs++
	tooMany := v.dialogs > maxDialogs
	if !v.closing {
		v.console.add("dialog", d.Type()+": "+d.Message(), "", 0)
	}
	v.mu.Unlock()
	if tooMany {
		// The dialog stays open, which blocks the page until its context ends.
		v.stop(errDialogs)
		return
	}
	if d.Type() == "beforeunload" {
		_ = d.Accept()
		return
	}
	_ = d.Dismiss()
}

func (v *view) heardPopup(p playwright.Page) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p == v.page || v.closing {
		return
	}
	v.popups++
	v.console.add("popup", "a window was opened and closed", "", 0)
	if v.popups > maxPopups {
		v.stop(errPopups)
		return
	}
	go func() { _ = p.Close() }()
}

func (v *view) heardRequest(playwright.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closing {
		v.result.Requests++
	}
}

// isDocument reports whether a request is for the page itself.
func (v *view) isDocument(r playwright.Request) bool {
	return r.IsNavigationRequest() && r.Frame() == v.page.MainFrame()
}

func (v *view) heardResponse(r playwright.Response) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing {
		return
	}
	request, status := r.Request(), r.Status()
	document := v.isDocument(request)
	if document && v.result.Status == 0 && (status < 300 || status >= 400) {
		v.result.Status = status
	}
	if status >= 400 {
		v.faults.addExchange(exchange{document: document, NetworkError: browser.NetworkError{
			Method: request.Method(), URL: r.URL(), Status: status, Resource: request.ResourceType(),
		}})
	}
}

// cancelled is the browser's error for a request that the page, or leaving it, cancelled.
const cancelled = "net::ERR_ABORTED"

func (v *view) heardFailure(r playwright.Request) {
	code := ""
	if err := r.Failure(); err != nil {
		code = strings.TrimPrefix(err.Error(), "playwright: ")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing || code == cancelled {
		return
	}
	v.faults.addExchange(exchange{document: v.isDocument(r), NetworkError: browser.NetworkError{
		Method: r.Method(), URL: r.URL(), Resource: r.ResourceType(),
		Failure: failure(code, r.URL(), v.job.proxy != nil),
	}})
}

// plainError returns the first line of an error, without the library's name.
func plainError(err error) string {
	message, _, _ := strings.Cut(err.Error(), "\n")
	for _, prefix := range []string{"playwright: ", "timeout: ", "Error: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	return text.Clip(message, maxText)
}
