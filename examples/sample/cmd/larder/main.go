// The larder command lists the contents of the larder and keeps it up to date.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"example.org/larder/report"
	"example.org/larder/store"
	"example.org/larder/units"
)

const usage = `usage: larder [-file FILE] [-today YYYY-MM-DD] [COMMAND]

  list                        what there is (the default)
  put ITEM AMOUNT [DAY]       add to it; good until DAY
  use ITEM AMOUNT             take from it
`

func main() {
	if err := run(os.Args[1:], os.Stdout, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "larder:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer, now time.Time) error {
	flags := flag.NewFlagSet("larder", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage) }
	file := flags.String("file", "larder.json", "")
	today := flags.String("today", now.Format(time.DateOnly), "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	date, err := time.Parse(time.DateOnly, *today)
	if err != nil {
		return fmt.Errorf("-today: %w", err)
	}
	l, err := store.Open(*file)
	if err != nil {
		return err
	}
	args = flags.Args()
	switch {
	case len(args) == 0 || len(args) == 1 && args[0] == "list":
		return report.Write(out, l.Items(), date)
	case args[0] == "put" && (len(args) == 3 || len(args) == 4):
		item := store.Item{Name: args[1]}
		if item.Amount, err = units.Parse(args[2]); err != nil {
			return err
		}
		if len(args) == 4 {
			if item.Until, err = time.Parse(time.DateOnly, args[3]); err != nil {
				return err
			}
		}
		if err := l.Put(item); err != nil {
			return err
		}
	case args[0] == "use" && len(args) == 3:
		amount, err := units.Parse(args[2])
		if err != nil {
			return err
		}
		left, err := l.Use(args[1], amount)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s: %s left\n", args[1], left); err != nil {
			return err
		}
	default:
		flags.Usage()
		return fmt.Errorf("cannot understand %q", args)
	}
	return l.Save(*file)
}
