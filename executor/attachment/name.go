package attachment

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// Named gives files names that a folder and git can hold, each its own. The names come from people's machines, by way
// of a chat, so they are not trusted.
func Named(files []record.Attachment) []record.Attachment {
	taken := make(map[string]bool)
	list := make([]record.Attachment, len(files))
	for i, f := range files {
		f.Name = fileNamed(f.Name, taken)
		list[i] = f
	}
	return list
}

func fileNamed(name string, taken map[string]bool) string {
	name = path.Base(strings.ReplaceAll(strings.ToValidUTF8(name, "_"), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || strings.ContainsRune("/:\"'`$<>|*?&;", r) {
			return '_'
		}
		return r
	}, name)
	name = strings.TrimLeft(name, "-. ") // no option, no hidden file, no ".."
	ext := path.Ext(name)
	if len(ext) > 16 {
		ext = ""
	}
	stem := strings.TrimSuffix(text.Clip(strings.TrimSuffix(name, ext), 120), "…")
	if stem == "" || !record.GitCanHold(stem+ext) {
		stem = "file"
	}
	free := stem + ext
	for n := 2; taken[strings.ToLower(free)]; n++ {
		free = fmt.Sprintf("%s-%d%s", stem, n, ext)
	}
	taken[strings.ToLower(free)] = true
	return free
}

// WithoutContent returns the files as a journal keeps them.
func WithoutContent(files []record.Attachment) []record.Attachment {
	var list []record.Attachment
	for _, f := range files {
		f.Content = nil
		list = append(list, f)
	}
	return list
}
