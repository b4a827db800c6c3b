package replay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// The parts of an outcome.
const (
	Files  = "files"
	Exit   = "exit"
	End    = "end" // the reason why it did not end by itself
	Stdout = "stdout"
	Stderr = "stderr"
)

// Bounds of a comparison.
const (
	maxFiles   = 10_000   // that differ
	maxShown   = 20       // files that are looked into
	maxFile    = 1 << 20  // bytes of such a file
	maxStream  = 64 << 20 // bytes of an output
	maxExcerpt = 200      // bytes of a line
)

// Outcome is the result of a command.
type Outcome struct {
	After  gitd.Hash // the branch after it
	Exit   *int
	Reason string // why it did not end by itself
	// Output opens its whole output, [Stdout] or [Stderr].
	Output func(stream string) (io.ReadCloser, error)
}

// Difference is the first place at which two outcomes differ in one part.
type Difference struct {
	Part string `json:"part"`
	Path string `json:"path,omitempty"` // of Files
	Line int    `json:"line,omitempty"` // from 1; 0 if the files are not compared by lines
	Was  string `json:"was"`            // the line, or the value
	Now  string `json:"now"`
}

// String returns the difference in a line.
func (d Difference) String() string {
	where := d.Part
	if d.Path != "" {
		where = d.Path
	}
	if d.Line > 0 {
		where = fmt.Sprintf("%s:%d", where, d.Line)
	}
	return fmt.Sprintf("%s: %q, was %q", where, d.Now, d.Was)
}

// Compare compares the outcomes of a command that began twice from the same commit. Of files, at most 20 are listed.
func Compare(ctx context.Context, repo *gitd.Repo, was, now Outcome) ([]Difference, error) {
	list, err := compareFiles(ctx, repo, was.After, now.After)
	if err != nil {
		return nil, err
	}
	if a, b := status(was.Exit), status(now.Exit); a != b {
		list = append(list, Difference{Part: Exit, Was: a, Now: b})
	}
	if was.Reason != now.Reason {
		list = append(list, Difference{Part: End, Was: was.Reason, Now: now.Reason})
	}
	for _, stream := range []string{Stdout, Stderr} {
		d, err := compareStreams(stream, was.Output, now.Output)
		if err != nil {
			return nil, err
		}
		if d != nil {
			list = append(list, *d)
		}
	}
	return list, nil
}

func status(exit *int) string {
	if exit == nil {
		return ""
	}
	return fmt.Sprint(*exit)
}

// compareFiles compares the trees of two commits.
func compareFiles(ctx context.Context, repo *gitd.Repo, was, now gitd.Hash) ([]Difference, error) {
	if was == now {
		return nil, nil
	}
	changes, err := repo.Compare(ctx, was, now, maxFiles)
	if errors.Is(err, gitd.ErrTooLarge) {
		return []Difference{{Part: Files, Now: fmt.Sprintf("more than %d files differ, or more folders than are compared", maxFiles)}}, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Difference
	for i, c := range changes {
		if i == maxShown {
			list = append(list, Difference{Part: Files, Now: fmt.Sprintf("%d more files differ", len(changes)-i)})
			break
		}
		d, err := compareFile(ctx, repo, c)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// compareFile finds the first line at which the versions of a file differ. It finds none in binary and large files, and
// in files that are there once.
func compareFile(ctx context.Context, repo *gitd.Repo, c gitd.TreeChange) (Difference, error) {
	d := Difference{Part: Files, Path: text.OneLine(c.Path, 4*maxExcerpt), Was: entry(c.OldMode, c.Old), Now: entry(c.NewMode, c.New)}
	if c.Old == "" || c.New == "" || c.OldMode != c.NewMode || !isRegular(c.NewMode) {
		return d, nil
	}
	var content [2][]byte
	for i, h := range []gitd.Hash{c.Old, c.New} {
		var err error
		content[i], err = repo.Blob(ctx, h, maxFile)
		if errors.Is(err, gitd.ErrTooLarge) {
			return d, nil
		}
		if err != nil {
			return d, err
		}
		if bytes.IndexByte(content[i], 0) >= 0 {
			return d, nil
		}
	}
	line, err := FirstDifference(bytes.NewReader(content[0]), bytes.NewReader(content[1]))
	if err == nil && line != nil {
		d.Line, d.Was, d.Now = line.Line, line.Was, line.Now
	}
	return d, err
}

// isRegular reports whether a mode is that of a file, and not of a link or a submodule.
func isRegular(mode uint32) bool { return mode&0o170000 == 0o100000 }

// entry describes a version of a file.
func entry(mode uint32, h gitd.Hash) string {
	if h == "" {
		return "no file"
	}
	return fmt.Sprintf("%06o %.10s", mode, h)
}

// compareStreams compares an output.
func compareStreams(stream string, was, now func(string) (io.ReadCloser, error)) (*Difference, error) {
	a, err := was(stream)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := now(stream)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	d, err := FirstDifference(io.LimitReader(a, maxStream), io.LimitReader(b, maxStream))
	if d != nil {
		d.Part = stream
	}
	return d, err
}

// FirstDifference returns the first line at which two texts differ, or nil. It reads them side by side, and keeps at
// most 64 KiB of each.
func FirstDifference(was, now io.Reader) (*Difference, error) {
	a, b := bufio.NewReaderSize(was, 64<<10), bufio.NewReaderSize(now, 64<<10)
	for line := 1; ; {
		// Of a long line both give the same part, because they are equal so far.
		x, aerr := a.ReadSlice('\n')
		y, berr := b.ReadSlice('\n')
		for _, err := range []error{aerr, berr} {
			if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
				return nil, err
			}
		}
		if !bytes.Equal(x, y) {
			return &Difference{Line: line, Was: excerpt(x, y), Now: excerpt(y, x)}, nil
		}
		if aerr == io.EOF && berr == io.EOF {
			return nil, nil
		}
		if aerr == nil {
			line++
		}
	}
}

// excerpt returns the part of a line at which it begins to differ from another one. The end of a line is shown only if
// the other one has none.
func excerpt(line, other []byte) string {
	if bytes.HasSuffix(line, []byte("\n")) && bytes.HasSuffix(other, []byte("\n")) {
		line = line[:len(line)-1]
	}
	at := 0
	for at < min(len(line), len(other)) && line[at] == other[at] {
		at++
	}
	if at = max(at-maxExcerpt/2, 0); at == 0 {
		return text.Clip(string(line), maxExcerpt)
	}
	return text.Ellipsis + text.Clip(string(line[at:]), maxExcerpt)
}
