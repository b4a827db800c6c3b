package attachment

import (
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Clean returns files without secrets.
func Clean(secrets *redact.Secrets, files []record.Attachment) []record.Attachment {
	var clean []record.Attachment
	for _, f := range files {
		clean = append(clean, record.Attachment{Name: secrets.Name(f.Name), Type: secrets.String(f.Type),
			Content: secrets.Bytes(f.Content)})
	}
	return clean
}
