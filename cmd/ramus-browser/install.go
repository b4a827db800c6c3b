package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mxschmitt/playwright-go"
)

// registryEnv is the variable with the npm registry of the driver's package. If it is empty, npm is asked for its
// registry.
const registryEnv = "PLAYWRIGHT_GO_NPM_REGISTRY"

// install writes Playwright's driver and this program to a folder. It runs when an image is built or a machine is set
// up, never during a task. It installs no browser, which is a package of the distribution.
func install(ctx context.Context, args []string, w io.Writer) error {
	if len(args) != 1 {
		return errors.New("install takes one folder: `ramus-browser install DIR`")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return fmt.Errorf("cannot install into %s: %w", args[0], err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot install into %s: %w", dir, err)
	}
	node := os.Getenv("PLAYWRIGHT_NODEJS_PATH")
	if node == "" {
		if node, err = exec.LookPath("node"); err != nil {
			return fmt.Errorf("cannot find node: %w; install Node.js 20 or newer", err)
		}
		if err := os.Setenv("PLAYWRIGHT_NODEJS_PATH", node); err != nil {
			return fmt.Errorf("cannot say where node is: %w", err)
		}
	}
	if os.Getenv(registryEnv) == "" {
		if registry := npmRegistry(ctx); registry != "" {
			if err := os.Setenv(registryEnv, registry); err != nil {
				return fmt.Errorf("cannot say where npm's registry is: %w", err)
			}
		}
	}
	driver := filepath.Join(dir, "driver")
	if err := installDriver(driver, w); err != nil {
		return fmt.Errorf("cannot install Playwright's driver: %w", err)
	}
	if err := link(node, filepath.Join(driver, "node")); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %w", err)
	}
	return copyProgram(self, filepath.Join(dir, "ramus-browser"))
}

// installDriver keeps a working driver of this version. It unpacks a missing one in another folder and renames it, so
// that a kill leaves no incomplete driver that Playwright would take for complete. It replaces a driver that does not
// work, such as one of another version.
func installDriver(driver string, w io.Writer) error {
	at := func(dir string) error {
		return playwright.Install(&playwright.RunOptions{
			DriverDirectory:     dir,
			SkipInstallBrowsers: true,
			Stdout:              w,
			Stderr:              w,
			Logger:              slog.New(slog.NewTextHandler(w, nil)),
		})
	}
	next := driver + ".new"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(driver, "package")); err == nil && at(driver) == nil {
		return nil
	}
	if err := os.Mkdir(next, 0o755); err != nil {
		return err
	}
	err := at(next)
	if err == nil {
		err = os.RemoveAll(driver)
	}
	if err == nil {
		err = os.Rename(next, driver)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(next))
	}
	return nil
}

// npmRegistry returns the registry that npm is configured to use. Returns "" if npm does not answer.
func npmRegistry(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "npm", "config", "get", "registry").Output()
	if err != nil {
		return ""
	}
	url := strings.TrimSpace(string(out))
	if !strings.HasPrefix(url, "http") {
		return ""
	}
	return url
}

// link replaces the link at name atomically, because a check may be using it.
func link(target, name string) error {
	if now, err := os.Readlink(name); err == nil && now == target {
		return nil
	}
	next := name + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot link node: %w", err)
	}
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("cannot link node: %w", err)
	}
	if err := os.Rename(next, name); err != nil {
		return fmt.Errorf("cannot link node: %w", err)
	}
	return nil
}

// copyProgram copies to a new file and renames it, because the old one may be running.
func copyProgram(from, to string) error {
	if same, err := filepath.EvalSymlinks(to); err == nil && same == from {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("cannot copy this program: %w", err)
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".ramus-browser-*")
	if err != nil {
		return fmt.Errorf("cannot copy this program: %w", err)
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o755), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("cannot copy this program to %s: %w", to, err)
	}
	return nil
}
