// Command standin takes the runner's place in tests of what happens when the
// runner misbehaves; STANDIN in the commands' environment says how. As "standin
// wait" it is the one program of an image that has no other: it waits for a
// file called go where it was started, and exits with 3.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if os.Args[1] == "wait" {
		fmt.Println("waiting")
		for {
			if _, err := os.Stat("go"); err == nil {
				fmt.Println("gone")
				os.Exit(3)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	var cfg struct {
		Listen string
		Env    []string
	}
	if err := json.Unmarshal([]byte(os.Args[2]), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if slices.Contains(cfg.Env, "STANDIN=dies") {
		fmt.Fprintln(os.Stderr, "these are its last words")
		os.Exit(7)
	}
	path := strings.TrimPrefix(cfg.Listen, "unix:")
	if slices.Contains(cfg.Env, "STANDIN=points elsewhere") {
		if err := os.Symlink("/var/run/docker.sock", path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		time.Sleep(time.Hour)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Chmod(path, 0o666)
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(3)
		}
		if !slices.Contains(cfg.Env, "STANDIN=silent") {
			fmt.Fprint(conn, "SSH-2.0-standin\r\n")
			conn.Close()
		}
	}
}
