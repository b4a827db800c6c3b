//go:build deps

package ramus

import (
	_ "cel.dev/cel-go/cel"
	_ "github.com/creack/pty"
	_ "github.com/gliderlabs/ssh"
	_ "github.com/go-git/go-git/v5"
	_ "github.com/goccy/go-yaml"
	_ "github.com/golang-jwt/jwt/v5"
	_ "github.com/google/jsonschema-go/jsonschema"
	_ "github.com/moby/moby/api/types/container"
	_ "github.com/moby/moby/client"
	_ "github.com/pkg/sftp"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "go.etcd.io/bbolt"
	_ "golang.org/x/crypto/ssh"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
)
