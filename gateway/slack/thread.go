package slack

import "context"

// Thread is a conversation, normalised: everything that was said, oldest first.
type Thread struct {
	Team    string `json:"team"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`
	// Parent is the first message. Its User is the thread's starter.
	Parent  Post   `json:"parent"`
	Replies []Post `json:"replies"`
}

// Post is one message of a thread.
type Post struct {
	TS    string `json:"ts"`
	User  string `json:"user,omitempty"`
	Name  string `json:"name,omitempty"` // display name; the id where it cannot be resolved
	Bot   bool   `json:"bot,omitempty"`
	Own   bool   `json:"own,omitempty"`  // posted by ramus
	Mark  *Mark  `json:"mark,omitempty"` // of ramus's own
	Text  string `json:"text"`           // entities undone, users' names in place of ids
	Files []File `json:"files,omitempty"`
}

// File is a file or an image that was shared.
type File struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	MIME     string `json:"mime,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Download string `json:"-"` // url_private_download: it needs the token, so it is told to nobody
}

// Thread reads a thread to the end of its pages (conversations.replies) and
// resolves the names of those who speak in it.
func (c *Client) Thread(ctx context.Context, team, channel, ts string) (Thread, error) {
	panic("not built")
}
