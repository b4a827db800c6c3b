package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/store/storetest"
)

// minioServer is a real service of S3.
type minioServer struct {
	address string
	client  *minio.Core
	buckets atomic.Int64
}

// startMinIO starts the program that scripts/minio.sh builds. It ends with the test.
func startMinIO(t *testing.T) *minioServer {
	t.Helper()
	program := os.Getenv("RAMUS_MINIO")
	if program == "" {
		program = filepath.Join("..", "..", "bin", "minio", "minio")
	}
	if _, err := os.Stat(program); os.Getenv("RAMUS_TEST") != "full" || err != nil {
		t.Skip("runs with RAMUS_TEST=full, after scripts/minio.sh:", err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &minioServer{address: free.Addr().String()}
	free.Close()
	dir, said := t.TempDir(), new(bytes.Buffer)
	cmd := exec.Command(program, "server", "--quiet", "--address", s.address, filepath.Join(dir, "data"))
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "MINIO_ROOT_USER=" + storetest.Key,
		"MINIO_ROOT_PASSWORD=" + storetest.Secret, "MINIO_REGION=" + storetest.Region, "MINIO_UPDATE=off",
		"MINIO_BROWSER=off", "MINIO_CI_CD=on"}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("MinIO: %s", said)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s.client, err = minio.NewCore(s.address, &minio.Options{Region: storetest.Region, Transport: transport,
		Creds: credentials.NewStaticV4(storetest.Key, storetest.Secret, "")})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err = s.client.ListBuckets(t.Context()); err == nil {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("MinIO does not answer: %v", err)
		}
	}
}

// bucket makes a bucket, and returns its address.
func (s *minioServer) bucket(t *testing.T) store.S3 {
	t.Helper()
	name := fmt.Sprint("ramus-", s.buckets.Add(1))
	if err := s.client.MakeBucket(t.Context(), name, minio.MakeBucketOptions{Region: storetest.Region}); err != nil {
		t.Fatal(err)
	}
	return store.S3{Bucket: name, Region: storetest.Region, Endpoint: "http://" + s.address, PathStyle: true,
		Key: storetest.Key, Secret: storetest.Secret}
}

// TestMinIO runs the suite of buckets on MinIO.
func TestMinIO(t *testing.T) {
	s := startMinIO(t)
	suiteOfS3(t, func(t *testing.T) (store.S3, func() []string) {
		config := s.bucket(t)
		return config, func() (names []string) {
			for u := range s.client.ListIncompleteUploads(t.Context(), config.Bucket, "", true) {
				if names = append(names, u.Key); u.Err != nil {
					t.Error(u.Err)
				}
			}
			return names
		}
	})
	t.Run("refused", func(t *testing.T) {
		for what, change := range map[string]func(*store.S3){
			"a wrong key":    func(c *store.S3) { c.Secret = "wrong-wrong-wrong" },
			"no such bucket": func(c *store.S3) { c.Bucket = "nobody" },
		} {
			config := s.bucket(t)
			change(&config)
			if err := opened(t, config).Put(t.Context(), "a", bytes.NewReader([]byte("x"))); err == nil {
				t.Errorf("%s: it is taken", what)
			}
			if _, err := opened(t, config).Open(t.Context(), "a"); err == nil || errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
