// Command ramus-browser looks at one page with a real browser and says what it
// saw. It runs in a container of its own beside the one that serves the page: a
// job (tasks/browser.Job, JSON) comes by standard input, a tar of evidence goes to
// standard output, and the exit code is the verdict. It is the only program of ramus
// that speaks to Playwright.
package main

import (
	"fmt"
	"os"

	"github.com/mxschmitt/playwright-go"
)

func main() {
	fmt.Fprintln(os.Stderr, "ramus-browser: not built", playwright.String(""))
	os.Exit(2)
}
