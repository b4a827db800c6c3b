package storetest

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestCheckSignature checks the examples of the S3 API reference, and changes of them.
func TestCheckSignature(t *testing.T) {
	const key, secret, region = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1"
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	request := func(method, url, signed, signature string, header ...string) *http.Request {
		r, err := http.NewRequest(method, "http://examplebucket.s3.amazonaws.com"+url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Date", "20130524T000000Z")
		r.Header.Set("X-Amz-Content-Sha256", empty)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+key+
			"/20130524/us-east-1/s3/aws4_request,SignedHeaders="+signed+",Signature="+signature)
		return r
	}
	get := func() *http.Request {
		return request("GET", "/test.txt", "host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", "Range", "bytes=0-9")
	}
	for _, r := range []*http.Request{
		get(),
		request("PUT", "/test$file.text", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
			"Date", "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Storage-Class", "REDUCED_REDUNDANCY",
			"X-Amz-Content-Sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
		request("GET", "/?lifecycle", "host;x-amz-content-sha256;x-amz-date",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
		request("GET", "/?max-keys=2&prefix=J", "host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
	} {
		if err := checkSignature(r, key, secret, region, now); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
	}

	for name, change := range map[string]func(r *http.Request){
		"method":   func(r *http.Request) { r.Method = "HEAD" },
		"path":     func(r *http.Request) { r.URL.Path = "/other.txt" },
		"query":    func(r *http.Request) { r.URL.RawQuery = "acl" },
		"host":     func(r *http.Request) { r.Host = "other.s3.amazonaws.com" },
		"range":    func(r *http.Request) { r.Header.Set("Range", "bytes=0-99") },
		"body":     func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD") },
		"unsigned": func(r *http.Request) { r.Header.Set("X-Amz-Acl", "public-read") },
		"date":     func(r *http.Request) { r.Header.Set("X-Amz-Date", "20130524T000001Z") },
		"none":     func(r *http.Request) { r.Header.Del("Authorization") },
		"key": func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), key, "other", 1))
		},
		"region": func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), region, "eu-west-1", 1))
		},
	} {
		r := get()
		if change(r); checkSignature(r, key, secret, region, now) == nil {
			t.Errorf("another %s than was signed is accepted", name)
		}
	}
	if err := checkSignature(get(), key, secret+"x", region, now); err == nil {
		t.Error("another secret is accepted")
	}
	if err := checkSignature(get(), key, secret, region, now.Add(time.Hour)); err == nil {
		t.Error("an old request is accepted")
	}
}
