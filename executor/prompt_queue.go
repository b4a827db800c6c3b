package executor

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Unsay takes back a prompt that the run's agent has not got, see [dialogue.Dialogue.Unsay].
func (x *Executor) Unsay(ctx context.Context, run, key string, by gitd.Person) (p record.Prompt, err error) {
	d, err := x.dialogueOf(ctx, run)
	if err == nil {
		p, err = d.Unsay(key, by)
	}
	if err != nil {
		return record.Prompt{}, fmt.Errorf("cannot take back what was said to %s: %w", run, err)
	}
	return p, nil
}

// Resay replaces the text of a prompt that the run's agent has not got, see [dialogue.Dialogue.Resay].
func (x *Executor) Resay(ctx context.Context, run, key, words string, by gitd.Person) error {
	d, err := x.dialogueOf(ctx, run)
	if err == nil {
		err = d.Resay(key, words, by)
	}
	if err != nil {
		return fmt.Errorf("cannot change what was said to %s: %w", run, err)
	}
	return nil
}

// Reorder puts the prompts that wait into the order of their keys. Prompts whose keys are missing keep their places.
func (x *Executor) Reorder(ctx context.Context, run string, keys []string, by gitd.Person) error {
	d, err := x.dialogueOf(ctx, run)
	if err == nil {
		err = d.Reorder(keys, by)
	}
	if err != nil {
		return fmt.Errorf("cannot reorder what was said to %s: %w", run, err)
	}
	return nil
}
