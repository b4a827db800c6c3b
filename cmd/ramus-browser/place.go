package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// dirEnv is the variable with a folder that is used instead of the one of this program.
const dirEnv = "RAMUS_BROWSER_DIR"

// place has the paths of the programs that a check needs.
type place struct {
	self     string // this program
	driver   string // package/cli.js is below it
	node     string
	chromium string
	ffmpeg   string // if empty, there is none, and no videos
}

// chromiums are the supported browsers, the best first. The headless shell needs two thirds of the memory and of the
// time.
var chromiums = []string{
	"/usr/lib/chromium/chromium-headless-shell",
	"/usr/lib/chromium/chromium",
}

// findPlace returns the paths of image and installation.
func findPlace() (place, error) {
	var p place
	self, err := os.Executable()
	if err != nil {
		return p, fmt.Errorf("cannot find this program: %w", err)
	}
	p.self = self
	dir := filepath.Dir(self)
	if d := os.Getenv(dirEnv); d != "" {
		dir = d
	}
	p.driver = filepath.Join(dir, "driver")
	if _, err := os.Stat(filepath.Join(p.driver, "package", "cli.js")); err != nil {
		return p, fmt.Errorf("cannot find Playwright's driver: %w; `ramus-browser install %s` gets it", err, dir)
	}
	if p.node, err = findNode(p.driver); err != nil {
		return p, err
	}
	if p.chromium = firstFile(chromiums...); p.chromium == "" {
		return p, errors.New("cannot find Chromium in /usr/lib/chromium; install Debian's package chromium-headless-shell")
	}
	p.ffmpeg = firstFile("/usr/bin/ffmpeg", "/usr/local/bin/ffmpeg")
	return p, nil
}

// findNode prefers the driver's own link, which install made.
func findNode(driver string) (string, error) {
	node := firstFile(filepath.Join(driver, "node"), "/usr/bin/node", "/usr/local/bin/node")
	if node == "" {
		return "", errors.New("cannot find node in /usr/bin or /usr/local/bin; install Node.js 20 or newer")
	}
	return node, nil
}

// firstFile returns the first name of an existing file, or "".
func firstFile(names ...string) string {
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// environment returns the environment of the driver and the browser. It has only paths, and no other variables of this
// process. work is the folder of the check, below which they may write.
func (p place) environment(work string) ([]string, error) {
	home, tmp, browsers := filepath.Join(work, "home"), filepath.Join(work, "tmp"), filepath.Join(work, "browsers")
	for _, dir := range []string{home, tmp, browsers} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make a folder for the browser: %w", err)
		}
	}
	if p.ffmpeg != "" {
		if err := p.linkFFmpeg(browsers); err != nil {
			return nil, err
		}
	}
	env := []string{
		"HOME=" + home,
		"TMPDIR=" + tmp,
		"XDG_CONFIG_HOME=" + filepath.Join(home, "config"),
		"XDG_CACHE_HOME=" + filepath.Join(home, "cache"),
		"PATH=/usr/local/bin:/usr/bin:/bin",
		// Pictures must not depend on the machine.
		"LANG=C.UTF-8",
		"TZ=UTC",
		"PLAYWRIGHT_DRIVER_PATH=" + p.driver,
		"PLAYWRIGHT_NODEJS_PATH=" + p.node,
		"PLAYWRIGHT_BROWSERS_PATH=" + browsers,
		"PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1",
	}
	if d := os.Getenv(dirEnv); d != "" {
		env = append(env, dirEnv+"="+d)
	}
	return env, nil
}

// linkFFmpeg links the machine's ffmpeg at the path at which Playwright expects its own, with the revision of the
// driver.
func (p place) linkFFmpeg(browsers string) error {
	revision, err := p.revision("ffmpeg")
	if err != nil {
		return err
	}
	dir := filepath.Join(browsers, "ffmpeg-"+revision)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make a folder for ffmpeg: %w", err)
	}
	if err := os.Symlink(p.ffmpeg, filepath.Join(dir, "ffmpeg-linux")); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot show ffmpeg to Playwright: %w", err)
	}
	return nil
}
