package engineer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
)

// ReadPictures reads the contents of the pictures in shown. left has the pictures that are damaged or whose content is
// not of the recorded type. The caller links them, so that a person who opens one gets the error.
func ReadPictures(ctx context.Context, x *executor.Executor, run record.Run, shown []render.Picture) (good []render.Picture, contents [][]byte, left []render.Picture, err error) {
	for _, p := range shown {
		content, err := readPicture(ctx, x, run, p)
		switch {
		case err != nil && (ctx.Err() != nil || !errors.Is(err, record.ErrDamaged) && !route.IsLasting(err)):
			return nil, nil, nil, err
		case err != nil || http.DetectContentType(content) != p.File.Type:
			left = append(left, p)
		default:
			good, contents = append(good, p), append(contents, content)
		}
	}
	return good, contents, left, nil
}

func readPicture(ctx context.Context, x *executor.Executor, run record.Run, p render.Picture) ([]byte, error) {
	f, err := x.OpenFile(ctx, run, p.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err = b.ReadFrom(io.LimitReader(f, p.MaxSize()+1)); err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", p.File.Name, err)
	}
	return b.Bytes(), nil
}
