//go:build deps

// Package ramus keeps here what it is about to use.
package ramus

import (
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
)
