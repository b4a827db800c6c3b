package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
)

// Config has the address of an API server and the credential for it.
type Config struct {
	// Server is the address of the API server, as "https://10.0.0.1:6443".
	Server string
	// Namespace is the namespace of the context, or of the pod. It may be empty.
	Namespace string
	// CA has the certificates that the API server's may be signed by, in PEM. If it is empty, those of the machine
	// apply.
	CA []byte
	// ServerName is the name in the API server's certificate. If it is empty, it is the one in Server.
	ServerName string
	// Dial opens connections to the API server. If it is nil, the default of net/http applies.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	credential source
}

// credential proves who asks: a token, a certificate, or both.
type credential struct {
	token       string
	certificate *tls.Certificate
}

// source returns the credential that is valid now. A nil source has none.
type source func(ctx context.Context) (credential, error)

// maxFile bounds configurations, tokens and certificates, in bytes.
const maxFile = 1 << 20

// Files of a pod's service account.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns the configuration of the pod that this process runs in. Returns [os.ErrNotExist] if it runs in
// none, or in one without the token of a service account.
func InCluster() (*Config, error) { return inCluster(serviceAccount, os.Getenv) }

func inCluster(dir string, getenv func(string) string) (*Config, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, fmt.Errorf("cannot find the API server: this process is not in a pod: %w", os.ErrNotExist)
	}
	token := filepath.Join(dir, "token")
	if _, err := readFile(token); err != nil {
		return nil, fmt.Errorf("cannot read the token of the pod's service account: %w", err)
	}
	ca, err := readFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate of the API server's authority: %w", err)
	}
	namespace, err := readFile(filepath.Join(dir, "namespace"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the namespace of the pod: %w", err)
	}
	return &Config{Server: "https://" + net.JoinHostPort(host, port), CA: ca,
		Namespace:  strings.TrimSpace(string(namespace)),
		credential: tokenFile(token)}, nil
}

// kubeconfig has the keys of a kubeconfig that are used.
type kubeconfig struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster   string `yaml:"cluster"`
			User      string `yaml:"user"`
			Namespace string `yaml:"namespace"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
}

type cluster struct {
	Server     string `yaml:"server"`
	CAFile     string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	Proxy      string `yaml:"proxy-url"`
}

type user struct {
	Token     string  `yaml:"token"`
	TokenFile string  `yaml:"tokenFile"`
	CertFile  string  `yaml:"client-certificate"`
	CertData  string  `yaml:"client-certificate-data"`
	KeyFile   string  `yaml:"client-key"`
	KeyData   string  `yaml:"client-key-data"`
	Exec      *plugin `yaml:"exec"`
}

// plugin is a program that returns a credential.
type plugin struct {
	APIVersion string   `yaml:"apiVersion"`
	Command    string   `yaml:"command"`
	Args       []string `yaml:"args"`
	Env        []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
}

// Load reads a kubeconfig. The empty context means its current one. Relative paths in it are relative to its folder.
func Load(path, context string) (*Config, error) {
	wrap := func(err error) (*Config, error) {
		return nil, fmt.Errorf("cannot use the kubeconfig %s: %w", path, err)
	}
	text, err := readFile(path)
	if err != nil {
		return wrap(err)
	}
	k, err := parse(text)
	if err != nil {
		return wrap(err)
	}
	if context == "" {
		context = k.Current
	}
	c, u, namespace, err := k.find(context)
	if err != nil {
		return wrap(err)
	}
	config := &Config{Server: strings.TrimSuffix(c.Server, "/"), ServerName: c.ServerName, Namespace: namespace}
	switch {
	case !strings.HasPrefix(config.Server, "https://"):
		return wrap(fmt.Errorf("the server %q of context %q is not https://…", c.Server, context))
	case c.Insecure:
		return wrap(errors.New(
			"insecure-skip-tls-verify would send the credential to any server: set certificate-authority"))
	case c.Proxy != "":
		return wrap(errors.New("proxy-url is not supported: set HTTPS_PROXY"))
	}
	dir := filepath.Dir(path)
	if config.CA, err = dataOrFile(c.CAData, c.CAFile, dir); err != nil {
		return wrap(err)
	}
	if config.credential, err = u.source(dir); err != nil {
		return wrap(fmt.Errorf("the user of context %q: %w", context, err))
	}
	return config, nil
}

func parse(text []byte) (kubeconfig, error) {
	var k kubeconfig
	return k, yaml.Unmarshal(text, &k)
}

// find returns the parts of a context.
func (k kubeconfig) find(context string) (c cluster, u user, namespace string, err error) {
	for _, x := range k.Contexts {
		if x.Name != context {
			continue
		}
		namespace = x.Context.Namespace
		found := false
		for _, y := range k.Clusters {
			if y.Name == x.Context.Cluster {
				c, found = y.Cluster, true
			}
		}
		if !found {
			return c, u, "", fmt.Errorf("there is no cluster %q, which context %q names", x.Context.Cluster, context)
		}
		for _, y := range k.Users {
			if y.Name == x.Context.User {
				return c, y.User, namespace, nil
			}
		}
		return c, u, "", fmt.Errorf("there is no user %q, which context %q names", x.Context.User, context)
	}
	return c, u, "", fmt.Errorf("there is no context %q", context)
}

// source returns where the credential of a user comes from.
func (u user) source(dir string) (source, error) {
	switch {
	case u.Exec != nil:
		return (&pluginSource{plugin: *u.Exec, dir: dir, now: time.Now}).credential, nil
	case u.TokenFile != "":
		return tokenFile(within(dir, u.TokenFile)), nil
	case u.Token != "":
		return func(context.Context) (credential, error) { return credential{token: u.Token}, nil }, nil
	}
	cert, err := dataOrFile(u.CertData, u.CertFile, dir)
	if err != nil {
		return nil, err
	}
	key, err := dataOrFile(u.KeyData, u.KeyFile, dir)
	if err != nil {
		return nil, err
	}
	if cert == nil || key == nil {
		return nil, errors.New("it has no token, no client certificate and no exec")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("its client certificate: %w", err)
	}
	return func(context.Context) (credential, error) { return credential{certificate: &pair}, nil }, nil
}

// tokenFile reads a token at each use, because the kubelet replaces it.
func tokenFile(path string) source {
	return func(context.Context) (credential, error) {
		b, err := readFile(path)
		if err != nil {
			return credential{}, fmt.Errorf("cannot read the token: %w", err)
		}
		return credential{token: strings.TrimSpace(string(b))}, nil
	}
}

// pluginSource keeps the credential of a plugin until shortly before it expires.
type pluginSource struct {
	plugin plugin
	dir    string
	now    func() time.Time

	mu      sync.Mutex // guards the fields below, and lets one plugin run at a time
	last    credential
	expires time.Time
}

// Limits of plugins.
const (
	pluginTime = time.Minute
	// pluginMargin is the time before its expiry from which a credential is not used.
	pluginMargin = 30 * time.Second
	// pluginLife is the life of a credential without an expiry.
	pluginLife = 10 * time.Minute
)

func (s *pluginSource) credential(ctx context.Context) (credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.expires) {
		return s.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	name := s.plugin.Command
	if strings.Contains(name, "/") {
		name = within(s.dir, name)
	}
	cmd := exec.CommandContext(ctx, name, s.plugin.Args...)
	cmd.Dir = s.dir
	info, _ := json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": s.plugin.APIVersion,
		"spec": map[string]any{"interactive": false}})
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "KUBERNETES_EXEC_INFO=" + string(info)}
	for _, v := range s.plugin.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	var out, said limitedBuffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second
	if err := cmd.Run(); err != nil {
		return credential{}, fmt.Errorf("cannot get a credential from %s: %w: %s", s.plugin.Command, err,
			strings.TrimSpace(said.String()))
	}
	c, expires, err := parseCredential(out.Bytes())
	if err != nil {
		return credential{}, fmt.Errorf("cannot read the credential of %s: %w", s.plugin.Command, err)
	}
	if s.last, s.expires = c, expires.Add(-pluginMargin); expires.IsZero() {
		s.expires = s.now().Add(pluginLife)
	}
	return s.last, nil
}

// parseCredential reads an ExecCredential.
func parseCredential(text []byte) (c credential, expires time.Time, err error) {
	var e struct {
		Status *struct {
			Token   string    `json:"token"`
			Cert    string    `json:"clientCertificateData"`
			Key     string    `json:"clientKeyData"`
			Expires time.Time `json:"expirationTimestamp"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return c, expires, err
	}
	if e.Status == nil || e.Status.Token == "" && e.Status.Cert == "" {
		return c, expires, errors.New("it has neither a token nor a certificate")
	}
	c.token = e.Status.Token
	if e.Status.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(e.Status.Cert), []byte(e.Status.Key))
		if err != nil {
			return c, expires, err
		}
		c.certificate = &pair
	}
	return c, e.Status.Expires, nil
}

// limitedBuffer keeps the first maxFile bytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:max(0, min(len(p), maxFile-b.Len()))])
	return len(p), nil
}

func dataOrFile(data, file, dir string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file != "":
		return readFile(within(dir, file))
	}
	return nil, nil
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// WithToken returns the configuration with another credential, a token that does not change.
func (c *Config) WithToken(token string) *Config {
	other := *c
	other.credential = func(context.Context) (credential, error) { return credential{token: token}, nil }
	return &other
}
