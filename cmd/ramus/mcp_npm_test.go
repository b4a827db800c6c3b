package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

// mcpPackages are the programs of npm that connect to the server, each as it was released. Node is
// among them because the suite needs version 22.
var mcpPackages = []string{"@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/sdk@1.32.2",
	"@modelcontextprotocol/inspector@2.12.0"}

// mcpScenarios are the scenarios of the conformance suite that apply to every server. The others
// need tools of certain names and answers.
var mcpScenarios = []string{"server-initialize", "ping", "tools-list", "dns-rebinding-protection",
	"server-sse-multiple-streams"}

// mcpClientScript lists the tools and the active tasks with the SDK's own client.
const mcpClientScript = `
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const [how, where, token] = process.argv.slice(2);
const transport = how === "stdio"
  ? new StdioClientTransport({ command: where, args: ["mcp"], env: process.env })
  : new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers: { Authorization: "Bearer " + token } } });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
await client.ping();
const { tools } = await client.listTools();
const active = await client.callTool({ name: "list_active_tasks", arguments: {} });
const heard = [];
const wrote = await client.callTool({ name: "lib_write_file", arguments: { repo: "app", path: how + ".txt", content: "x" } }, undefined,
  { onprogress: (p) => heard.push(p.message), timeout: 120000 });
let wrong = "";
try { await client.callTool({ name: "nothing", arguments: {} }); } catch (e) { wrong = e.message; }
if (how === "http") await transport.terminateSession();
await client.close();
console.log(JSON.stringify({ name: client.getServerVersion().name, tools: tools.map((t) => t.name), active, wrote: wrote.structuredContent, heard, wrong }));
`

// TestMCPFromNPM connects the protocol's own programs to the real binary, by HTTP and by standard
// input and output. They are the conformance suite, the TypeScript SDK's client and the inspector's
// command line. The test takes about a minute on two cores, with npm's packages in the cache.
func TestMCPFromNPM(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	modules := npmModules(t)
	s := newMCPServer(t)
	bin := filepath.Join(modules, ".bin")
	run := func(t *testing.T, args ...string) (stdout string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(modules, nodePackage(), "bin", "node"), args...)
		cmd.Env = append(os.Environ(), "RAMUS_DATA="+s.data, "RAMUS_URL=",
			"PATH="+bin+":"+filepath.Join(modules, nodePackage(), "bin")+":"+os.Getenv("PATH"))
		cmd.Dir = filepath.Dir(modules)
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, &out, &errOut)
		}
		return out.String()
	}
	program := func(name string) string {
		path, err := filepath.EvalSymlinks(filepath.Join(bin, name))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}

	// The suite sends no token. The proxy adds it, and changes nothing else.
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	// The proxy has a transport of its own, because other tests that close a server close the
	// connections of http.DefaultTransport.
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: own, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+s.token)
	}}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without full duplex the first byte of the answer closes the request's body. If the
		// transport is still reading the body then, it closes its connection, and the answer is cut
		// off.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer between.Close()
	for _, scenario := range mcpScenarios {
		t.Run("conformance/"+scenario, func(t *testing.T) {
			out := run(t, program("conformance"), "server", "--url", between.URL+"/mcp", "--scenario", scenario)
			if !strings.Contains(out, " 0 failed, 0 warnings") {
				t.Errorf("%s", out)
			}
		})
	}

	script := filepath.Join(filepath.Dir(modules), "client.mjs")
	if err := os.WriteFile(script, []byte(mcpClientScript), 0o600); err != nil {
		t.Fatal(err)
	}
	for how, args := range map[string][]string{"http": {s.url + "/mcp", s.token}, "stdio": {s.binary}} {
		t.Run("sdk/"+how, func(t *testing.T) {
			var got struct {
				Name   string
				Tools  []string
				Active struct{ StructuredContent struct{ Result []any } }
				Wrote  struct{ State string }
				Heard  []string
				Wrong  string
			}
			out := run(t, append([]string{script, how}, args...)...)
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got.Name != "engineer" || !slices.Contains(got.Tools, "submit_task") ||
				got.Active.StructuredContent.Result == nil ||
				got.Wrote.State != "complete" || len(got.Heard) == 0 || !strings.Contains(got.Wrong, "nothing") {
				t.Errorf("%s", out)
			}
		})
		t.Run("inspector/"+how, func(t *testing.T) {
			where := []string{s.binary, "mcp", "-e", "RAMUS_DATA=" + s.data}
			if how == "http" {
				where = []string{s.url + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + s.token}
			}
			// --strict refuses schemas that the provider of a model would not take.
			out := run(t, append(append([]string{program("mcp-inspector"), "--cli"}, where...), "--method",
				"tools/list", "--strict")...)
			if !strings.Contains(out, `"submit_task"`) {
				t.Errorf("%s", out)
			}
			out = run(t, append(append([]string{program("mcp-inspector"), "--cli"}, where...), "--method", "tools/call",
				"--tool-name", "list_active_tasks")...)
			if !strings.Contains(out, `"result": []`) {
				t.Errorf("%s", out)
			}
		})
	}
}

// nodePackage is the package of npm that is Node for this machine.
func nodePackage() string {
	return "node-linux-" + map[string]string{"amd64": "x64"}[runtime.GOARCH] +
		map[string]string{"arm64": "arm64"}[runtime.GOARCH]
}

// npmModules installs the packages below the user's cache, once for each list of them.
func npmModules(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("cannot run here: there is no npm")
	}
	packages := append(slices.Clone(mcpPackages), nodePackage()+"@22.23.3")
	sum := sha256.Sum256([]byte(strings.Join(packages, " ")))
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("cannot run here: no folder for npm's packages: %v", err)
	}
	dir := filepath.Join(cache, "ramus-test", "mcp-"+hex.EncodeToString(sum[:6]))
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	if err := os.WriteFile(filepath.Join(fresh, "package.json"), []byte(`{"private":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts",
		"--engine-strict=false"}, packages...)...)
	install.Dir = fresh
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("cannot run here: npm cannot install the programs that speak MCP: %v\n%s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return modules
}

// mcpServer is a server that runs until the end of the test, with a repository and a token.
type mcpServer struct{ binary, data, url, token string }

func newMCPServer(t *testing.T) *mcpServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // containers of another user start the binary
		t.Fatal(err)
	}
	s := &mcpServer{binary: filepath.Join(dir, "ramus"), data: filepath.Join(dir, "data")}
	if err := programs.Into(dir, "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	address := loopback.Address(t)
	s.url = "http://" + address
	upstream := filepath.Join(dir, "upstream")
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.data, "ramus.yaml"),
		[]byte("listen: "+address+"\nagents: {coder: {command: [cat]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "RAMUS_DATA="+s.data, "RAMUS_URL=", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_GLOBAL=/dev/null")
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &errOut)
		}
		return strings.TrimSpace(string(out))
	}
	if out := do(s.binary, "doctor"); strings.Contains(out, "none  sandbox") && strings.Contains(out, "none  docker") {
		t.Skip("cannot run here: no container engine works")
	}
	do("git", "init", "-q", "-b", "main", upstream)
	do("git", "-C", upstream, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty",
		"-m", "begin")
	do(s.binary, "repo", "import", "app", upstream)
	serve := exec.Command(s.binary, "serve")
	serve.Env = append(os.Environ(), "RAMUS_DATA="+s.data)
	var log bytes.Buffer
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("the server ended badly: %v\n%s", err, &log)
		}
		// A command with its own server removes the containers that are left.
		ps := exec.Command(s.binary, "ps")
		ps.Env = serve.Env
		if out, err := ps.CombinedOutput(); err != nil {
			t.Errorf("ramus ps: %v\n%s", err, out)
		}
		remains.Check(t, dir)
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(s.url + "/health")
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not come up: %v", err)
		}
	}
	s.token = do(s.binary, "token", "create", "--subject", "assistant", "--repo", "app", "--scope", "write")
	return s
}
