package github

import (
	"bytes"
	lru "container/list"
	"io"
	"net/http"
	"sync"
)

const (
	// keptBytes bounds the sum of all cached answers, and keptLongest one of them, in bytes.
	keptBytes   = 16 << 20
	keptLongest = 1 << 20
)

// kept caches answers by their URL, so that GitHub can answer that nothing has changed, which counts against no limit.
// Objects that are read repeatedly rarely change. The least recently used answers are dropped first. The zero value is
// ready to use.
//
// See
// https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#use-conditional-requests-if-appropriate.
type kept struct {
	mu    sync.Mutex // guards the fields below
	byURL map[string]*lru.Element
	order lru.List // of *keptAnswer, the most recently used first
	size  int
}

type keptAnswer struct {
	url, tag string
	header   http.Header
	body     []byte
}

// ask makes a request conditional if its answer is cached.
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

// answer returns the cached answer as if it were new.
func (a *keptAnswer) answer(resp *http.Response) *http.Response {
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header, resp.Body, resp.ContentLength = a.header.Clone(), io.NopCloser(bytes.NewReader(a.body)), int64(len(a.body))
	return resp
}

// keep caches the answer to a request.
func (k *kept) keep(r *http.Request, resp *http.Response) {
	tag := resp.Header.Get("ETag")
	if r.Method != http.MethodGet || resp.StatusCode != http.StatusOK || tag == "" {
		return
	}
	body, _ := io.ReadAll(resp.Body) // the body is in memory already, see send
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

// size returns the approximate memory of the answer.
func (a *keptAnswer) size() int { return len(a.body) + len(a.url) + 4<<10 }

func (k *kept) drop(e *lru.Element) {
	a := k.order.Remove(e).(*keptAnswer)
	delete(k.byURL, a.url)
	k.size -= a.size()
}
