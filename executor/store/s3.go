package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/ramus-dev/ramus/executor/record"
)

// Bounds of the requests to S3.
const (
	partSize     = 8 << 20          // bytes of a part of an upload; smaller objects are one request
	maxParts     = 10_000           // of one upload, the limit of S3
	partWithin   = 10 * time.Minute // one part, with all attempts
	answerWithin = 30 * time.Second // from the end of a request to the head of its answer; a run's end waits for it
	abortWithin  = 5 * time.Second  // a broken upload is aborted, also while the executor closes
	s3Attempts   = 3                // of a request, the number of the AWS libraries
)

// S3 is the address of a bucket of S3, or of a service with its protocol. It is opened by Open.
type S3 struct {
	// Bucket is the bucket's name.
	Bucket string
	// Prefix begins the keys of all objects, such as "ramus/". It may be empty.
	Prefix string
	// Region is the region of the bucket. If it is empty it is AWS_REGION or AWS_DEFAULT_REGION, and otherwise the
	// service is asked for it.
	Region string
	// Endpoint is the address of the service, "https://HOST[:PORT]". If it is empty the service is AWS.
	Endpoint string
	// PathStyle puts the bucket's name into the path of URLs instead of the host's name. A host that is an IP address has it so
	// in any case.
	PathStyle bool
	// NoChecksums leaves out the CRC-32 of objects and parts, which some services do not know. Their SHA-256 is part of the
	// signature in any case.
	NoChecksums bool
	// Profile is one of the AWS configuration files. If it is empty, see Key.
	Profile string
	// Key and Secret are the credentials. If they are empty the credentials are those of Profile. Without a Profile
	// they are those of the environment, a web identity, the default profile, the container, or the machine,
	// whichever comes first.
	Key, Secret string
	// Attempts is how often a request is made that fails for a temporary reason. The default is 3.
	Attempts int
	// Transport makes the requests. If it is nil they are made as by [http.DefaultTransport].
	Transport *http.Transport
}

// Open returns a [Bucket] of the configuration. It sends nothing. The first request fails if the credentials or the
// bucket are wrong.
func (s S3) Open() (Bucket, error) {
	if err := s3utils.CheckValidBucketName(s.Bucket); err != nil {
		return nil, fmt.Errorf("%w bucket %q: %w", record.ErrInvalid, s.Bucket, err)
	}
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if s.Endpoint == "" {
			s.Endpoint = os.Getenv(name) // like the AWS command line
		}
	}
	endpoint := &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	if s.Endpoint != "" {
		var err error
		if endpoint, err = url.Parse(s.Endpoint); err != nil {
			return nil, fmt.Errorf("%w endpoint: %w", record.ErrInvalid, err)
		}
	}
	if endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" ||
		strings.Trim(endpoint.Path, "/") != "" || endpoint.RawQuery != "" || endpoint.User != nil {
		return nil, fmt.Errorf("%w endpoint %q: want https://HOST[:PORT]", record.ErrInvalid, endpoint.Redacted())
	}
	transport := s.Transport
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport)
	}
	transport = transport.Clone()       // the caller's stays as it is
	transport.DisableCompression = true // the client gets objects as they are stored
	transport.ResponseHeaderTimeout = answerWithin
	o := &minio.Options{
		Creds:        s.credentials(transport),
		Secure:       endpoint.Scheme == "https",
		Region:       s.region(),
		Transport:    &idleTransport{transport, answerWithin},
		BucketLookup: minio.BucketLookupDNS,
		MaxRetries:   s.Attempts,
	}
	if s.PathStyle || net.ParseIP(endpoint.Hostname()) != nil {
		o.BucketLookup = minio.BucketLookupPath
	} else if s.Endpoint == "" {
		o.BucketLookup = minio.BucketLookupAuto // certificates do not cover names with dots
	}
	if o.MaxRetries <= 0 {
		o.MaxRetries = s3Attempts
	}
	client, err := minio.NewCore(endpoint.Host, o)
	if err != nil {
		return nil, err
	}
	client.SetS3EnableDualstack(false)
	return &s3Bucket{client: client, transport: transport, name: s.Bucket, prefix: s.Prefix, checksums: !s.NoChecksums}, nil
}

// s3Bucket is the [Bucket] that [S3.Open] makes.
type s3Bucket struct {
	client       *minio.Core
	transport    *http.Transport
	name, prefix string
	checksums    bool
}

// Put implements [Bucket]. An object of more than one part is an upload that is completed at its end, or aborted. The parts are
// sent one after another, from one buffer.
func (b *s3Bucket) Put(ctx context.Context, key string, from io.Reader) error {
	if err := checkKey(key); err != nil {
		return err
	}
	from = contextReader{ctx, from}
	part := make([]byte, partSize)
	n, err := io.ReadFull(from, part)
	switch {
	case err == nil:
		return b.problem(ctx, b.putParts(ctx, b.prefix+key, part, from))
	case ended(err):
		return b.problem(ctx, b.putWhole(ctx, b.prefix+key, part[:n]))
	default:
		return err
	}
}

// ended reports whether an error of io.ReadFull means the end of the input.
func ended(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }

func (b *s3Bucket) putWhole(ctx context.Context, key string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, partWithin)
	defer cancel()
	o := putOptions()
	if b.checksums {
		o.UserMetadata = map[string]string{checksumHeader: checksum(content)}
	}
	_, err := b.client.PutObject(ctx, b.name, key, bytes.NewReader(content), int64(len(content)), "", hexSum(content), o)
	return err
}

// putParts uploads an object whose first part is in buf.
func (b *s3Bucket) putParts(ctx context.Context, key string, buf []byte, from io.Reader) (err error) {
	o := putOptions()
	if b.checksums {
		o.UserMetadata = map[string]string{"X-Amz-Checksum-Algorithm": "CRC32"}
	}
	id, err := b.client.NewMultipartUpload(ctx, b.name, key, o)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
		defer cancel()
		// If it fails, the parts stay until the bucket's own rules remove them. No object is made of them.
		_ = b.client.AbortMultipartUpload(ctx, b.name, key, id)
	}()

	var parts []minio.CompletePart
	for n := len(buf); n > 0; {
		if len(parts) == maxParts {
			return fmt.Errorf("%w object: it has more than %d MiB", record.ErrInvalid, maxParts*partSize>>20)
		}
		part, err := b.putPart(ctx, key, id, len(parts)+1, buf[:n])
		if err != nil {
			return err
		}
		parts = append(parts, part)
		if n, err = io.ReadFull(from, buf); err != nil && !ended(err) {
			return err
		}
	}
	_, err = b.client.CompleteMultipartUpload(ctx, b.name, key, id, parts, minio.PutObjectOptions{})
	return err
}

func (b *s3Bucket) putPart(ctx context.Context, key, id string, number int, content []byte) (minio.CompletePart, error) {
	ctx, cancel := context.WithTimeout(ctx, partWithin)
	defer cancel()
	o := minio.PutObjectPartOptions{Sha256Hex: hexSum(content), DisableContentSha256: true}
	done := minio.CompletePart{PartNumber: number}
	if b.checksums {
		done.ChecksumCRC32 = checksum(content)
		o.CustomHeader = http.Header{checksumHeader: {done.ChecksumCRC32}}
	}
	part, err := b.client.PutObjectPart(ctx, b.name, key, id, number, bytes.NewReader(content), int64(len(content)), o)
	done.ETag = part.ETag
	return done, err
}

// putOptions has the SHA-256 of the whole body signed with the head of the request. The library would sign chunks of the body
// otherwise, which fewer services know.
func putOptions() minio.PutObjectOptions {
	return minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true}
}

const checksumHeader = "X-Amz-Checksum-Crc32"

func checksum(b []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)))
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Open implements [Bucket].
func (b *s3Bucket) Open(ctx context.Context, key string) (Object, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	body, info, _, err := b.client.GetObject(ctx, b.name, b.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.problem(ctx, err)
	}
	if info.Size < 0 {
		return nil, errors.Join(errors.New("the service does not say how long an object is"), body.Close())
	}
	return &s3Object{bucket: b, ctx: ctx, key: key, size: info.Size, body: body}, nil
}

// Exists implements [Bucket].
func (b *s3Bucket) Exists(ctx context.Context, key string) (bool, error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	_, err := b.client.StatObject(ctx, b.name, b.prefix+key, minio.StatObjectOptions{})
	if err = b.problem(ctx, err); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List implements [Bucket].
func (b *s3Bucket) List(ctx context.Context, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for o := range b.client.ListObjectsIter(ctx, b.name,
			minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true, FetchOwner: new(bool)}) {
			if o.Err != nil {
				yield(Entry{}, b.problem(ctx, o.Err))
				return
			}
			if !yield(Entry{Key: strings.TrimPrefix(o.Key, b.prefix), Size: o.Size, Time: o.LastModified}, nil) {
				return
			}
		}
		if ctx.Err() != nil { // the library just ends then
			yield(Entry{}, context.Cause(ctx))
		}
	}
}

// Delete implements [Bucket].
func (b *s3Bucket) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	err := b.problem(ctx, b.client.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Close implements [Bucket].
func (b *s3Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// problem makes an error of the library one of the bucket.
func (b *s3Bucket) problem(ctx context.Context, err error) error {
	var answer minio.ErrorResponse
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &answer) && answer.Code == minio.NoSuchKey:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case errors.As(err, &answer):
		return fmt.Errorf("bucket %s: %s: %w", b.name, answer.Code, err)
	default:
		return fmt.Errorf("bucket %s: %w", b.name, err)
	}
}

// s3Object is an open object. A read after a seek makes a new request.
type s3Object struct {
	bucket *s3Bucket
	ctx    context.Context // of Open
	key    string
	size   int64
	at     int64         // where the next Read begins
	body   io.ReadCloser // from at on; nil if it must be requested
}

func (o *s3Object) Size() int64 { return o.size }

func (o *s3Object) Read(p []byte) (int, error) {
	if o.at >= o.size {
		return 0, io.EOF
	}
	if o.body == nil {
		var get minio.GetObjectOptions
		if o.at > 0 {
			if err := get.SetRange(o.at, 0); err != nil {
				return 0, err
			}
		}
		body, info, _, err := o.bucket.client.GetObject(o.ctx, o.bucket.name, o.bucket.prefix+o.key, get)
		if err != nil {
			return 0, o.bucket.problem(o.ctx, err)
		}
		if info.Size != o.size-o.at {
			return 0, errors.Join(fmt.Errorf("the service sends %d bytes of an object, not the last %d", info.Size,
				o.size-o.at), body.Close())
		}
		o.body = body
	}
	n, err := o.body.Read(p)
	o.at += int64(n)
	if err != nil && err != io.EOF && o.ctx.Err() != nil {
		err = context.Cause(o.ctx)
	}
	return n, err
}

func (o *s3Object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.size
	}
	if offset < 0 {
		return o.at, fmt.Errorf("cannot seek in %s: %w offset", o.key, record.ErrInvalid)
	}
	if offset == o.at {
		return offset, nil
	}
	o.at = offset
	return offset, o.Close()
}

func (o *s3Object) Close() error {
	if o.body == nil {
		return nil
	}
	body := o.body
	o.body = nil
	return body.Close()
}
