package github

import (
	"bytes"
	lru "container/list"
	"io"
	"net/http"
	"sync"
)

const (
	// keptBytes bounds all answers that are kept, and keptLongest one of them.
	keptBytes   = 16 << 20
	keptLongest = 1 << 20
)

// kept remembers answers by their URL, so that GitHub can say that nothing has
// changed, which counts against no limit: what is looked at again and again
// rarely has. The least used go first. The zero value is ready.
//
// See https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#use-conditional-requests-if-appropriate.
type kept struct {
	mu    sync.Mutex // guards all below
	byURL map[string]*lru.Element
	order lru.List // of *keptAnswer, the last used first
	size  int
}

type keptAnswer struct {
	url, tag string
	header   http.Header
	body     []byte
}

// ask makes a request conditional where an answer is kept.
func (k *kept) ask(r *http.Request) *keptAnswer {
	if r.Method != http.MethodGet {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.byURL[r.URL.String()]
	if e == nil {
		return nil
	}
	k.order.MoveToFront(e)
	a := e.Value.(*keptAnswer)
	r.Header.Set("If-None-Match", a.tag)
	return a
}

// answer is what was kept, as if it had come anew.
func (a *keptAnswer) answer(resp *http.Response) *http.Response {
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header, resp.Body, resp.ContentLength = a.header.Clone(), io.NopCloser(bytes.NewReader(a.body)), int64(len(a.body))
	return resp
}

// keep remembers an answer to a request.
func (k *kept) keep(r *http.Request, resp *http.Response) {
	tag := resp.Header.Get("ETag")
	if r.Method != http.MethodGet || resp.StatusCode != http.StatusOK || tag == "" {
		return
	}
	body, _ := io.ReadAll(resp.Body) // it is in memory, see send
	resp.Body = io.NopCloser(bytes.NewReader(body))
	k.mu.Lock()
	defer k.mu.Unlock()
	url := r.URL.String()
	if e := k.byURL[url]; e != nil {
		k.drop(e)
	}
	if len(body) > keptLongest {
		return
	}
	if k.byURL == nil {
		k.byURL = make(map[string]*lru.Element)
	}
	a := &keptAnswer{url, tag, resp.Header.Clone(), body}
	k.byURL[url] = k.order.PushFront(a)
	for k.size += a.size(); k.size > keptBytes; {
		k.drop(k.order.Back())
	}
}

// size is about what it costs.
func (a *keptAnswer) size() int { return len(a.body) + len(a.url) + 4<<10 }

func (k *kept) drop(e *lru.Element) {
	a := k.order.Remove(e).(*keptAnswer)
	delete(k.byURL, a.url)
	k.size -= a.size()
}
