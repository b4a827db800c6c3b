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

// Main is `ramus layers UID FOLDER`, which a [Lift] starts. It does the work of a Keeper below FOLDER for user UID, and
// returns the exit status.
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
		return errors.New("only ramus starts this command, with the number of a user and a folder")
	}
	uid, err := strconv.Atoi(args[0])
	if err != nil || uid < 0 {
		return fmt.Errorf("%q is not the number of a user", args[0])
	}
	return Serve(ctx, args[1], uid)
}
