package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/mxschmitt/playwright-go"
)

// mcp becomes Playwright's own MCP server, which is part of the driver. With it an agent in the neighbouring container
// controls a browser, by HTTP on loopback (/mcp). The browser has the same network rules as that of a check, and cannot
// reach the server itself.
func mcp(args []string) error {
	flags := flag.NewFlagSet("mcp", flag.ContinueOnError)
	host := flags.String("host", "127.0.0.1", "address to listen on")
	port := flags.Int("port", 8931, "port to listen on")
	proxy := flags.String("proxy", "",
		"where all but local addresses are asked for (http://HOST:PORT); empty: they are refused")
	origins := flags.String("allowed-origins", "",
		"origins that may be asked for, by semicolons; empty: all that the walls let through")
	output := flags.String("output-dir", filepath.Join(os.TempDir(), "browser"), "folder for pictures and downloads")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *port < 1 || *port > 65535 || net.ParseIP(*host) == nil {
		return errors.New("mcp takes --host ADDRESS, --port N, --proxy URL, --allowed-origins LIST, --output-dir DIR")
	}
	out, err := proxyURL(*proxy)
	if err != nil {
		return err
	}
	p, err := findPlace()
	if err != nil {
		return err
	}
	server := filepath.Join(p.driver, "package", "lib", "entry", "mcp.js")
	if _, err := os.Stat(server); err != nil {
		return fmt.Errorf("cannot find the MCP server of the driver: %w", err)
	}
	work, err := os.MkdirTemp("", "ramus-mcp-")
	if err != nil {
		return fmt.Errorf("cannot make a folder to work in: %w", err)
	}
	env, err := p.environment(work)
	if err != nil {
		return err
	}
	config := filepath.Join(work, "config.json")
	text, err := json.Marshal(mcpConfig(p, launchArgs(out, strconv.Itoa(*port)),
		strings.FieldsFunc(*origins, func(r rune) bool { return r == ';' }), *output))
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write the MCP server's configuration: %w", err)
	}
	err = syscall.Exec(p.node, []string{"node", server,
		"--config", config, "--host", *host, "--port", strconv.Itoa(*port),
		// A page whose own name resolves to loopback gets no answer.
		"--allowed-hosts", "localhost:" + strconv.Itoa(*port) + "," + net.JoinHostPort(*host, strconv.Itoa(*port))}, env)
	return fmt.Errorf("cannot start the MCP server: %w", err)
}

// mcpConfig returns the server's configuration file.
func mcpConfig(p place, args, origins []string, output string) map[string]any {
	config := map[string]any{
		"browser": map[string]any{
			"browserName": "chromium",
			"isolated":    true,
			"launchOptions": map[string]any{
				"executablePath":  p.chromium,
				"headless":        true,
				"chromiumSandbox": false,
				"args":            args,
			},
			"contextOptions": map[string]any{
				"viewport": playwright.Size{Width: 1440, Height: 1000},
			},
		},
		"outputDir":     output,
		"outputMaxSize": 128 << 20, // part of the sidecar's memory
	}
	if len(origins) > 0 {
		config["network"] = map[string]any{"allowedOrigins": origins}
	}
	return config
}
