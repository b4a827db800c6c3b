package storetest

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/store"
)

// Configuration of a new stand-in.
const (
	Bucket = "evidence"
	Region = "eu-test-1"
	Key    = "AKIDEXAMPLE"
	Secret = "not-a-secret-but-long-enough"
)

// S3 is a stand-in of S3 that holds one bucket. It serves objects by PUT, GET with ranges, HEAD and DELETE, uploads
// in parts, lists in version 2, and the bucket's region. The bucket is in the path or in the host's name.
//
// It refuses requests that are not signed (SigV4), bodies that do not have their checksums, and uploads whose parts
// are too small, out of order or without the checksum that was announced. A request that S3 would refuse, or that the
// stand-in does not know, fails the test. It can be away, hang, and lose connections in the middle of an upload.
//
// Methods are safe for concurrent use.
type S3 struct {
	t    testing.TB
	http *httptest.Server

	mu      sync.Mutex // guards all below
	objects map[string]object
	uploads map[string]*upload
	begun   int // uploads
	away    bool
	gone    bool            // the bucket does not exist
	hangs   chan struct{}   // closed when requests proceed; nil if they do not hang
	hanging int             // requests that wait for that
	breakAt int             // number of PUTs that are answered before one breaks, counted down; 0 if none breaks
	asked   map[string]int  // requests by method
	last    http.Header     // of the last request with a body
	hosts   map[string]bool // of all requests
}

// object is an object of the bucket.
type object struct {
	content []byte
	time    time.Time
}

// upload is an upload in parts that has not ended.
type upload struct {
	key       string
	checksums bool // of all parts
	parts     map[int][]byte
}

// NewS3 returns a stand-in that ends with the test.
func NewS3(t testing.TB) *S3 {
	s := &S3{t: t, objects: make(map[string]object), uploads: make(map[string]*upload), asked: make(map[string]int),
		hosts: make(map[string]bool)}
	s.http = httptest.NewServer(s)
	t.Cleanup(s.http.Close)
	t.Cleanup(func() { s.Hang(false) })
	return s
}

// Config returns the address of the stand-in, with credentials that it accepts. No request is retried.
func (s *S3) Config() store.S3 {
	return store.S3{Bucket: Bucket, Region: Region, Endpoint: s.http.URL, PathStyle: true, Key: Key, Secret: Secret,
		Attempts: 1, Transport: &http.Transport{}}
}

// Addr returns HOST:PORT of the stand-in.
func (s *S3) Addr() string { return s.http.Listener.Addr().(*net.TCPAddr).String() }

// Open returns the client's side, which ends with the test.
func (s *S3) Open() store.Bucket {
	b, err := s.Config().Open()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return b
}

func (s *S3) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// SetAway has all requests answered with 503, or not any more.
func (s *S3) SetAway(away bool) { s.set(func() { s.away = away }) }

// SetGone removes the bucket, or brings it back.
func (s *S3) SetGone(gone bool) { s.set(func() { s.gone = gone }) }

// Hang has no request answered, or not any more.
func (s *S3) Hang(hang bool) {
	s.set(func() {
		if s.hangs != nil {
			close(s.hangs)
		}
		s.hangs = nil
		if hang {
			s.hangs = make(chan struct{})
		}
	})
}

// Hanging returns how many requests wait for an answer.
func (s *S3) Hanging() (n int) {
	s.set(func() { n = s.hanging })
	return n
}

// BreakPut has the connection of the nth PUT from now on lost in the middle of its body.
func (s *S3) BreakPut(n int) { s.set(func() { s.breakAt = n }) }

// Change replaces the content of an object by the result of change. It makes an object that does not exist. If change
// returns nil the object is removed.
func (s *S3) Change(key string, change func([]byte) []byte) {
	s.set(func() {
		content := change(slices.Clone(s.objects[key].content))
		if content == nil {
			delete(s.objects, key)
			return
		}
		s.objects[key] = object{content, time.Now()}
	})
}

// Count returns how many requests there were with a method.
func (s *S3) Count(method string) (n int) {
	s.set(func() { n = s.asked[method] })
	return n
}

// Keys returns the keys of all objects, sorted.
func (s *S3) Keys() (keys []string) {
	s.set(func() { keys = slices.Sorted(maps.Keys(s.objects)) })
	return keys
}

// Unfinished returns the keys of the uploads that were neither completed nor aborted.
func (s *S3) Unfinished() (keys []string) {
	s.set(func() {
		for _, u := range s.uploads {
			keys = append(keys, u.key)
		}
	})
	return keys
}

// Last returns the header of the last request with a body.
func (s *S3) Last() (h http.Header) {
	s.set(func() { h = s.last })
	return h
}

// Hosts returns the hosts that requests named, sorted.
func (s *S3) Hosts() (hosts []string) {
	s.set(func() { hosts = slices.Sorted(maps.Keys(s.hosts)) })
	return hosts
}

// failure is an error answer, as XML.
type failure struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(failure{Code: code, Message: message})
}

// ServeHTTP implements [http.Handler].
func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.hang(r)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.Method]++
	s.hosts[r.Host] = true
	if s.away {
		fail(w, 503, "ServiceUnavailable", "away")
		return
	}
	bucket, key := split(r)
	region := Region
	if r.URL.Query().Has("location") {
		region = "us-east-1" // the region for a client that does not know the bucket's
	}
	if err := checkSignature(r, Key, Secret, region, time.Now()); err != nil {
		s.refuse(w, r, 403, "SignatureDoesNotMatch", err)
		return
	}
	if bucket != Bucket || s.gone {
		fail(w, 404, "NoSuchBucket", bucket)
		return
	}
	if r.Method == "PUT" && s.breakAt > 0 {
		if s.breakAt--; s.breakAt == 0 {
			_, _ = io.CopyN(io.Discard, r.Body, 1<<10)
			panic(http.ErrAbortHandler) // the connection is gone
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	if err := checkBody(r.Header, body); err != nil {
		s.refuse(w, r, 400, "BadDigest", err)
		return
	}
	if len(body) > 0 {
		s.last = r.Header
	}
	switch {
	case key == "":
		s.serveBucket(w, r)
	case r.Method == "POST" || r.URL.Query().Has("uploadId"):
		s.serveUpload(w, r, key, body)
	default:
		s.serveObject(w, r, key, body)
	}
}

// hang returns when a request is to be answered, or nobody waits for the answer any more.
func (s *S3) hang(r *http.Request) {
	s.mu.Lock()
	hangs := s.hangs
	if hangs != nil {
		s.hanging++
	}
	s.mu.Unlock()
	if hangs == nil {
		return
	}
	select {
	case <-hangs:
	case <-r.Context().Done():
	}
	s.set(func() { s.hanging-- })
}

// split returns the bucket and the key of a request.
func split(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if strings.HasPrefix(r.Host, Bucket+".") {
		return Bucket, path
	}
	bucket, key, _ = strings.Cut(path, "/")
	return bucket, key
}

// refuse answers a request that no client of ours should make.
func (s *S3) refuse(w http.ResponseWriter, r *http.Request, status int, code string, err error) {
	s.t.Errorf("S3: %s %s: %v", r.Method, r.URL, err)
	fail(w, status, code, err.Error())
}

// serveBucket answers a request for the bucket.
func (s *S3) serveBucket(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case r.Method == "GET" && q.Has("location"):
		answer(w, struct {
			XMLName xml.Name `xml:"LocationConstraint"`
			Region  string   `xml:",chardata"`
		}{Region: Region})
	case r.Method == "GET" && q.Get("list-type") == "2" && q.Get("delimiter") == "":
		s.list(w, q.Get("prefix"), q.Get("continuation-token"), q.Get("encoding-type") == "url")
	default:
		s.refuse(w, r, 501, "NotImplemented", errors.New("not known here"))
	}
}

// pageSize is how many objects a page of a list has. S3 puts up to 1000 on one.
const pageSize = 2

// list answers with a page of a list that begins after the key token.
func (s *S3) list(w http.ResponseWriter, prefix, token string, escape bool) {
	type entry struct {
		Key          string
		LastModified string
		ETag         string
		Size         int
	}
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name                  string
		Prefix                string
		EncodingType          string `xml:",omitempty"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		KeyCount              int
		Contents              []entry
	}
	page.Name, page.Prefix = Bucket, prefix
	if escape {
		page.EncodingType = "url"
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= token {
			continue
		}
		if page.KeyCount == pageSize {
			page.IsTruncated = true
			break
		}
		o := s.objects[key]
		page.NextContinuationToken = key
		page.KeyCount++
		if escape {
			key = escapeKey(key)
		}
		page.Contents = append(page.Contents,
			entry{key, o.time.UTC().Format("2006-01-02T15:04:05.000Z"), tag(o.content), len(o.content)})
	}
	if !page.IsTruncated {
		page.NextContinuationToken = ""
	}
	answer(w, page)
}

// serveObject answers a request for an object.
func (s *S3) serveObject(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	switch r.Method {
	case "PUT":
		s.objects[key] = object{body, time.Now()}
		w.Header().Set("ETag", tag(body))
	case "DELETE":
		delete(s.objects, key)
		w.WriteHeader(204)
	case "GET", "HEAD":
		o, ok := s.objects[key]
		if !ok {
			fail(w, 404, "NoSuchKey", key)
			return
		}
		w.Header().Set("ETag", tag(o.content))
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", o.time, bytes.NewReader(o.content))
	default:
		s.refuse(w, r, 501, "NotImplemented", errors.New("not known here"))
	}
}

// serveUpload answers the requests of uploads in parts.
func (s *S3) serveUpload(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	q := r.URL.Query()
	if r.Method == "POST" && q.Has("uploads") {
		s.begun++
		id := fmt.Sprint("upload-", s.begun)
		s.uploads[id] = &upload{key: key, checksums: r.Header.Get("X-Amz-Checksum-Algorithm") == "CRC32",
			parts: make(map[int][]byte)}
		answer(w, struct {
			XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket, Key, UploadId string
		}{Bucket: Bucket, Key: key, UploadId: id})
		return
	}
	id := q.Get("uploadId")
	u := s.uploads[id]
	switch {
	case u == nil || u.key != key:
		fail(w, 404, "NoSuchUpload", id)
	case r.Method == "PUT":
		n, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil || n < 1 || n > 10_000 {
			s.refuse(w, r, 400, "InvalidArgument", fmt.Errorf("part %q", q.Get("partNumber")))
			return
		}
		if u.checksums != (r.Header.Get("X-Amz-Checksum-Crc32") != "") {
			s.refuse(w, r, 400, "InvalidRequest",
				errors.New("a part has a checksum and its upload has none, or the other way round"))
			return
		}
		u.parts[n] = body
		w.Header().Set("ETag", tag(body))
	case r.Method == "POST":
		if code, err := s.complete(u, body); err != nil {
			s.refuse(w, r, 400, code, err)
			return
		}
		delete(s.uploads, id)
		answer(w, struct {
			XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
			Bucket, Key, ETag string
		}{Bucket: Bucket, Key: key, ETag: tag(s.objects[key].content)})
	case r.Method == "DELETE":
		delete(s.uploads, id)
		w.WriteHeader(204)
	default:
		s.refuse(w, r, 501, "NotImplemented", errors.New("not known here"))
	}
}

// complete makes an object of the parts that a request lists.
func (s *S3) complete(u *upload, body []byte) (code string, err error) {
	var list struct {
		Part []struct {
			PartNumber    int
			ETag          string
			ChecksumCRC32 string
		}
	}
	if err := xml.Unmarshal(body, &list); err != nil || len(list.Part) == 0 {
		return "MalformedXML", fmt.Errorf("%d parts, %w", len(list.Part), err)
	}
	var content []byte
	for i, p := range list.Part {
		part, ok := u.parts[p.PartNumber]
		switch {
		case !ok || strings.Trim(tag(part), `"`) != strings.Trim(p.ETag, `"`) || u.checksums && p.ChecksumCRC32 != crc(part):
			return "InvalidPart", fmt.Errorf("part %d", p.PartNumber)
		case i > 0 && list.Part[i-1].PartNumber >= p.PartNumber:
			return "InvalidPartOrder", fmt.Errorf("part %d", p.PartNumber)
		case i < len(list.Part)-1 && len(part) < 5<<20:
			return "EntityTooSmall", fmt.Errorf("part %d has %d bytes", p.PartNumber, len(part))
		}
		content = append(content, part...)
	}
	s.objects[u.key] = object{content, time.Now()}
	return "", nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v)
}

// checkBody compares a body with the checksums and the length in its request. It does not support bodies that are
// signed in chunks.
func checkBody(h http.Header, body []byte) error {
	switch sum := h.Get("X-Amz-Content-Sha256"); {
	case sum == "UNSIGNED-PAYLOAD" && len(body) == 0:
	case sum != hexSum(body):
		return fmt.Errorf("the SHA-256 of the body is %s, not %q", hexSum(body), sum)
	}
	if sum := h.Get("X-Amz-Checksum-Crc32"); sum != "" && sum != crc(body) {
		return fmt.Errorf("the CRC-32 of the body is %s, not %s", crc(body), sum)
	}
	if sum := h.Get("Content-Md5"); sum != "" {
		if got := md5.Sum(body); sum != base64.StdEncoding.EncodeToString(got[:]) {
			return fmt.Errorf("the MD5 of the body is not %s", sum)
		}
	}
	return nil
}

func crc(b []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)))
}

func tag(b []byte) string {
	sum := md5.Sum(b)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}
