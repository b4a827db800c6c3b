package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
)

// Main is `ramus layers UID FOLDER`, what a [Lift] starts: it does for user UID what a
// Keeper does below FOLDER. It returns the exit status.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "ramus layers:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, args []string) error {
	if len(args) != 2 || !filepath.IsAbs(args[1]) {
		return errors.New("ramus starts this for itself, with a user's number and a folder")
	}
	uid, err := strconv.Atoi(args[0])
	if err != nil || uid < 0 {
		return fmt.Errorf("%q is no user's number", args[0])
	}
	return Serve(ctx, args[1], uid)
}
