package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/store/storetest"
)

func opened(t *testing.T, s store.S3) store.Bucket {
	t.Helper()
	b, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// TestS3Prefix checks that other objects of the same bucket are not visible.
func TestS3Prefix(t *testing.T) {
	server := storetest.NewS3(t)
	server.Change("sha256/ab/other", func([]byte) []byte { return []byte("other") })
	config := server.Config()
	config.Prefix = "ramus/"
	b := opened(t, config)
	if err := b.Put(t.Context(), "sha256/ab/own", strings.NewReader("own")); err != nil {
		t.Fatal(err)
	}
	if got, want := server.Keys(), []string{"ramus/sha256/ab/own", "sha256/ab/other"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if ok, err := b.Exists(t.Context(), "sha256/ab/other"); ok || err != nil {
		t.Errorf("another's object: %t, %v", ok, err)
	}
	for o, err := range b.List(t.Context(), "sha256/") {
		if err != nil || o.Key != "sha256/ab/own" {
			t.Errorf("%+v, %v", o, err)
		}
	}
}

// TestS3Checksums checks the checksums in requests.
func TestS3Checksums(t *testing.T) {
	for _, size := range []int{10, 9 << 20} {
		for _, without := range []bool{false, true} {
			server := storetest.NewS3(t)
			config := server.Config()
			config.NoChecksums = without
			if err := opened(t, config).Put(t.Context(), "a", bytes.NewReader(make([]byte, size))); err != nil {
				t.Fatal(err)
			}
			if n := server.Count("PUT"); n != 1+size>>23 {
				t.Errorf("%d bytes are %d requests", size, n)
			}
			if size > 8<<20 {
				continue // the last request ends the upload
			}
			h := server.Last()
			if got := h.Get("X-Amz-Checksum-Crc32") == ""; got != without {
				t.Errorf("without a checksum: %t, want %t", got, without)
			}
			if len(h.Get("X-Amz-Content-Sha256")) != 64 || h.Get("X-Amz-Trailer") != "" || h.Get("Content-Encoding") != "" {
				t.Errorf("the body is not signed as a whole: %v", h)
			}
		}
	}
}

// TestS3HostStyle has the bucket's name in that of the host, unless an address or PathStyle forbids it.
func TestS3HostStyle(t *testing.T) {
	for _, test := range []struct {
		endpoint string
		path     bool
		host     string
	}{
		{"http://s3.example.org", false, "evidence.s3.example.org"},
		{"http://s3.example.org:9000/", true, "s3.example.org:9000"},
		{"http://127.0.0.1:9000", false, "127.0.0.1:9000"},
		{"http://[::1]:9000", false, "[::1]:9000"},
	} {
		server := storetest.NewS3(t)
		config := server.Config()
		config.Endpoint, config.PathStyle = test.endpoint, test.path
		config.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", server.Addr())
		}}
		b := opened(t, config)
		if err := b.Put(t.Context(), "a/b", strings.NewReader("x")); err != nil {
			t.Errorf("%s: %v", test.endpoint, err)
		}
		if got := server.Hosts(); !slices.Equal(got, []string{test.host}) {
			t.Errorf("%s: hosts %q, want %q", test.endpoint, got, test.host)
		}
		if got := server.Keys(); !slices.Equal(got, []string{"a/b"}) {
			t.Errorf("%s: keys %q", test.endpoint, got)
		}
	}
}

// TestS3Breaks loses connections in the middle of uploads. One attempt leaves nothing, and several make a whole object.
func TestS3Breaks(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 2<<20)
	for n := 1; n <= 3; n++ {
		server := storetest.NewS3(t)
		server.BreakPut(n)
		if err := opened(t, server.Config()).Put(t.Context(), "a", bytes.NewReader(content)); err == nil {
			t.Errorf("part %d breaks, and nobody says so", n)
		}
		if keys := append(server.Keys(), server.Unfinished()...); len(keys) > 0 {
			t.Errorf("part %d breaks, and there is %q", n, keys)
		}
		server.BreakPut(n)
		config := server.Config()
		config.Attempts = 3
		b := opened(t, config)
		if err := b.Put(t.Context(), "a", bytes.NewReader(content)); err != nil {
			t.Errorf("part %d breaks once: %v", n, err)
		}
		o, err := b.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		o.Close()
	}
}

// TestS3Away distinguishes an absent object from an absent bucket and an absent service.
func TestS3Away(t *testing.T) {
	server := storetest.NewS3(t)
	b := opened(t, server.Config())
	check := func(what string) {
		t.Helper()
		_, err := b.Open(t.Context(), "a")
		err2 := b.Put(t.Context(), "a", strings.NewReader("x"))
		var err3 error
		for _, err3 = range b.List(t.Context(), "") {
		}
		for _, err := range []error{err, err2, err3} {
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	server.SetAway(true)
	check("away")
	if _, err := b.Exists(t.Context(), "a"); err == nil {
		t.Error("a service that is away knows that there is no object")
	}
	if err := b.Delete(t.Context(), "a"); err == nil {
		t.Error("a service that is away removes objects")
	}
	server.SetAway(false)
	server.SetGone(true)
	check("no bucket")
}

// TestS3Hangs ends calls that wait for a service that does not answer.
func TestS3Hangs(t *testing.T) {
	server := storetest.NewS3(t)
	b := opened(t, server.Config())
	if err := b.Put(t.Context(), "a", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	server.Hang(true)
	closing := errors.New("closing")
	for name, do := range map[string]func(ctx context.Context) error{
		"put":    func(ctx context.Context) error { return b.Put(ctx, "b", strings.NewReader("x")) },
		"parts":  func(ctx context.Context) error { return b.Put(ctx, "b", bytes.NewReader(make([]byte, 9<<20))) },
		"open":   func(ctx context.Context) error { _, err := b.Open(ctx, "a"); return err },
		"exists": func(ctx context.Context) error { _, err := b.Exists(ctx, "a"); return err },
		"delete": func(ctx context.Context) error { return b.Delete(ctx, "a") },
		"list": func(ctx context.Context) (err error) {
			for _, err = range b.List(ctx, "") {
			}
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() { done <- do(ctx) }()
		for start := time.Now(); server.Hanging() == 0 && time.Since(start) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
		cancel(closing)
		select {
		case err := <-done:
			if !errors.Is(err, closing) {
				t.Errorf("%s: %v, want %v", name, err, closing)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", name)
		}
	}
}

// TestS3Credentials finds credentials in the environment and in profiles. The error reports that there are none.
func TestS3Credentials(t *testing.T) {
	server := storetest.NewS3(t)
	home := t.TempDir()
	file := filepath.Join(home, "credentials")
	text := "[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[evidence]\naws_access_key_id = " +
		storetest.Key + "\naws_secret_access_key = " + storetest.Secret + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// none replaces the machine's own credentials, at an address without any.
	none := http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != server.Addr() {
			return nil, errors.New("no machine with credentials")
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}
	for _, test := range []struct {
		name    string
		env     map[string]string
		profile string
		wrong   string
	}{
		{"environment", map[string]string{"AWS_ACCESS_KEY_ID": storetest.Key,
			"AWS_SECRET_ACCESS_KEY": storetest.Secret}, "", ""},
		{"environment before profile", map[string]string{"AWS_ACCESS_KEY_ID": storetest.Key,
			"AWS_SECRET_ACCESS_KEY": storetest.Secret, "AWS_SHARED_CREDENTIALS_FILE": file}, "", ""},
		{"profile", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file}, "evidence", ""},
		{"profile before environment", map[string]string{"AWS_ACCESS_KEY_ID": "wrong", "AWS_SECRET_ACCESS_KEY": "wrong",
			"AWS_SHARED_CREDENTIALS_FILE": file}, "evidence", ""},
		{"profile of the environment",
			map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "evidence"}, "", ""},
		{"no such profile", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file}, "other", "other"},
		{"none", nil, "", "no credentials found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
				"AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
				"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
				"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"} {
				t.Setenv(name, test.env[name])
			}
			t.Setenv("HOME", home)
			config := server.Config()
			config.Key, config.Secret, config.Profile, config.Transport = "", "", test.profile, none.Clone()
			err := opened(t, config).Put(t.Context(), "a", strings.NewReader("x"))
			if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%v, want %q", err, test.wrong)
			}
		})
	}
}

func TestOpenURL(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	for _, test := range []struct{ url, wrong string }{
		{"file://" + dir, ""},
		{"file://" + dir + "?create_dir=1", `"create_dir"`},
		{"file://srv/artifacts", "want file:///FOLDER"},
		{"s3://evidence", ""},
		{"s3://evidence/", ""},
		{"s3://evidence/folder", "want file:///FOLDER"},
		{"s3://key:secret@evidence", "want file:///FOLDER"},
		{"s3://?region=eu-central-1", "want file:///FOLDER"},
		{"s3://e", "bucket"},
		{"s3://evidence?region=eu-central-1&endpoint=http://127.0.0.1:1&use_path_style=true&request_checksum_calculation=when_required&prefix=ramus/&profile=x", ""},
		{"s3://evidence?region=eu-central-1&colour=red", `parameter "colour"`},
		{"s3://evidence?region=a&region=b", "given twice"},
		{"s3://evidence?use_path_style=perhaps", "use_path_style"},
		{"s3://evidence?request_checksum_calculation=never", "request_checksum_calculation"},
		{"s3://evidence?endpoint=minio.example.org", "endpoint"},
		{"s3://evidence?endpoint=https://minio.example.org/folder", "endpoint"},
		{"s3://evidence?prefix=../x", "prefix"},
		{"mem://", "want file:///FOLDER"},
		{"/srv/artifacts", "want file:///FOLDER"},
		{"", "want file:///FOLDER"},
		{"://", "missing protocol scheme"},
		{"s3://evidence?region=%zz", "invalid"},
	} {
		b, err := store.OpenURL(test.url)
		if (err == nil) != (test.wrong == "") || err != nil &&
			(!strings.Contains(err.Error(), test.wrong) || !errors.Is(err, record.ErrInvalid)) {
			t.Errorf("%s: %v, want %q", test.url, err, test.wrong)
		}
		if err == nil {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is in %v", test.url, err)
		}
	}
	// The parameters have their effect.
	server := storetest.NewS3(t)
	t.Setenv("AWS_ACCESS_KEY_ID", storetest.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", storetest.Secret)
	b, err := store.OpenURL("s3://" + storetest.Bucket + "?region=" + storetest.Region + "&endpoint=http://" +
		server.Addr() + "&use_path_style=true&request_checksum_calculation=when_required&prefix=ramus/")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Put(t.Context(), "a", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if got := server.Keys(); !slices.Equal(got, []string{"ramus/a"}) || server.Last().Get("X-Amz-Checksum-Crc32") != "" {
		t.Errorf("%q, %v", got, server.Last())
	}
}
