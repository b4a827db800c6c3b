//go:build deps

// Package ramus lists the libraries that are chosen and not yet used.
package ramus

import (
	_ "github.com/gorilla/websocket"
	_ "github.com/slack-go/slack"
	_ "github.com/slack-go/slack/socketmode"
	_ "gocloud.dev/blob/memblob"
)
