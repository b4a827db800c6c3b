package executor_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

const (
	s3Bucket = "evidence"
	s3Region = "eu-test-1"
	s3ID     = "AKIDEXAMPLE"
	s3Secret = "not-a-secret-but-long-enough"
)

// s3Server is a stand-in of S3 that holds one bucket: objects by PUT, GET with
// ranges, HEAD, DELETE, and uploads in parts. It refuses what is not signed
// (SigV4), what does not fit its checksum and parts that are too small; and it
// can be away, or lose its connections in the middle of an upload.
type s3Server struct {
	t    *testing.T
	http *httptest.Server

	mu      sync.Mutex // guards all below
	objects map[string][]byte
	uploads map[string]map[int][]byte
	away    bool
	breakAt int            // so many requests with a body are answered before one breaks; 0: none does
	asked   map[string]int // requests by method
}

func newS3(t *testing.T) *s3Server {
	s := &s3Server{t: t, objects: map[string][]byte{}, uploads: map[string]map[int][]byte{}, asked: map[string]int{}}
	s.http = httptest.NewServer(s)
	t.Cleanup(s.http.Close)
	return s
}

// bucket is the client's side.
func (s *s3Server) bucket() *blob.Bucket {
	transport := &http.Transport{}
	client := s3.New(s3.Options{Region: s3Region, BaseEndpoint: aws.String(s.http.URL), UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider(s3ID, s3Secret, ""), RetryMaxAttempts: 1})
	b, err := s3blob.OpenBucket(context.Background(), client, s3Bucket, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return b
}

func (s *s3Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

type s3Error struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

func s3Fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(s3Error{Code: code, Message: message})
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.Method]++
	if s.away {
		s3Fail(w, 503, "ServiceUnavailable", "away")
		return
	}
	if err := s3Signed(r); err != nil {
		s.t.Errorf("S3: %s %s: %v", r.Method, r.URL, err)
		s3Fail(w, 403, "SignatureDoesNotMatch", err.Error())
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/"+s3Bucket+"/")
	if !ok {
		s3Fail(w, 404, "NoSuchBucket", r.URL.Path)
		return
	}
	if r.Method == "PUT" && s.breakAt > 0 {
		if s.breakAt--; s.breakAt == 0 {
			_, _ = io.CopyN(io.Discard, r.Body, 1<<10)
			panic(http.ErrAbortHandler) // the connection is gone in the middle
		}
	}
	body, err := s3Body(r)
	if err != nil {
		s.t.Errorf("S3: %s %s: %v", r.Method, r.URL, err)
		s3Fail(w, 400, "BadDigest", err.Error())
		return
	}
	q := r.URL.Query()
	upload := q.Get("uploadId")
	switch {
	case r.Method == "POST" && q.Has("uploads"):
		id := fmt.Sprint("upload-", len(s.uploads)+1)
		s.uploads[id] = map[int][]byte{}
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", s3Bucket, key, id)
	case upload != "" && s.uploads[upload] == nil:
		s3Fail(w, 404, "NoSuchUpload", upload)
	case r.Method == "PUT" && upload != "":
		n, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil || n < 1 || n > 10000 {
			s3Fail(w, 400, "InvalidArgument", "partNumber")
			return
		}
		s.uploads[upload][n] = body
		w.Header().Set("ETag", s3Tag(body))
	case r.Method == "POST" && upload != "":
		s.complete(w, key, upload, body)
	case r.Method == "DELETE" && upload != "":
		delete(s.uploads, upload)
		w.WriteHeader(204)
	case r.Method == "PUT":
		s.objects[key] = body
		w.Header().Set("ETag", s3Tag(body))
	case r.Method == "DELETE":
		delete(s.objects, key)
		w.WriteHeader(204)
	case r.Method == "GET" || r.Method == "HEAD":
		object, ok := s.objects[key]
		if !ok {
			s3Fail(w, 404, "NoSuchKey", key)
			return
		}
		w.Header().Set("ETag", s3Tag(object))
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(object))
	default:
		s.t.Errorf("S3: %s %s is not spoken here", r.Method, r.URL)
		s3Fail(w, 501, "NotImplemented", r.Method)
	}
}

// complete puts an object together from the parts that the request lists.
func (s *s3Server) complete(w http.ResponseWriter, key, upload string, body []byte) {
	var list struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(body, &list); err != nil || len(list.Part) == 0 {
		s3Fail(w, 400, "MalformedXML", "")
		return
	}
	var object []byte
	for i, p := range list.Part {
		part, ok := s.uploads[upload][p.PartNumber]
		switch {
		case !ok || s3Tag(part) != p.ETag:
			s3Fail(w, 400, "InvalidPart", fmt.Sprint(p.PartNumber))
			return
		case i > 0 && list.Part[i-1].PartNumber >= p.PartNumber:
			s3Fail(w, 400, "InvalidPartOrder", fmt.Sprint(p.PartNumber))
			return
		case i < len(list.Part)-1 && len(part) < 5<<20:
			s3Fail(w, 400, "EntityTooSmall", fmt.Sprint(len(part)))
			return
		}
		object = append(object, part...)
	}
	s.objects[key] = object
	delete(s.uploads, upload)
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, "<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><ETag>%s</ETag></CompleteMultipartUploadResult>", s3Bucket, key, s3Tag(object))
}

func s3Tag(b []byte) string {
	sum := sha256.Sum256(b)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// s3Signed signs the request's signed parts again and compares.
func s3Signed(r *http.Request) error {
	got := r.Header.Get("Authorization")
	_, signed, ok := strings.Cut(got, "SignedHeaders=")
	if !ok || !strings.HasPrefix(got, "AWS4-HMAC-SHA256 Credential="+s3ID+"/") {
		return fmt.Errorf("it is not signed: %q", got)
	}
	signed, _, _ = strings.Cut(signed, ",")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return err
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.URL.RequestURI(), nil)
	if err != nil {
		return err
	}
	for _, name := range strings.Split(signed, ";") {
		if values := r.Header.Values(name); name != "host" && len(values) > 0 {
			again.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if slices.Contains(strings.Split(signed, ";"), "content-length") {
		again.ContentLength = r.ContentLength
	}
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(r.Context(),
		aws.Credentials{AccessKeyID: s3ID, SecretAccessKey: s3Secret}, again, r.Header.Get("X-Amz-Content-Sha256"), "s3", s3Region, at)
	if err != nil {
		return err
	}
	if want := again.Header.Get("Authorization"); want != got {
		return fmt.Errorf("signed as\n%s, want\n%s", got, want)
	}
	return nil
}

// s3Body reads a body and compares it with what the request says of it.
func s3Body(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	sum := r.Header.Get("X-Amz-Checksum-Crc32")
	switch said := r.Header.Get("X-Amz-Content-Sha256"); {
	case strings.HasPrefix(said, "STREAMING-"):
		if body, sum, err = s3Chunks(body); err != nil {
			return nil, err
		}
	case said != "UNSIGNED-PAYLOAD":
		if got := sha256.Sum256(body); hex.EncodeToString(got[:]) != said {
			return nil, fmt.Errorf("the body's SHA-256 is not %s", said)
		}
	}
	var crc [4]byte
	binary.BigEndian.PutUint32(crc[:], crc32.ChecksumIEEE(body))
	if sum != "" && sum != base64.StdEncoding.EncodeToString(crc[:]) {
		return nil, fmt.Errorf("the body's CRC-32 is not %s", sum)
	}
	return body, nil
}

// s3Chunks takes aws-chunked apart: HEX[;…]\r\n, bytes, \r\n, … 0\r\n, trailers.
func s3Chunks(coded []byte) (body []byte, sum string, err error) {
	in := bufio.NewReader(bytes.NewReader(coded))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, "", err
		}
		hexSize, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		size, err := strconv.ParseInt(hexSize, 16, 32)
		if err != nil {
			return nil, "", err
		}
		if size == 0 {
			break
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, "", err
		}
		body = append(body, chunk[:size]...)
	}
	rest, err := io.ReadAll(in)
	for line := range strings.Lines(string(rest)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.EqualFold(name, "x-amz-checksum-crc32") {
			sum = value
		}
	}
	return body, sum, err
}
