package forge

import (
	"errors"
	"time"
)

// Pull is a pull request.
type Pull struct {
	Number      int       `json:"number"`
	URL         string    `json:"url"` // for people
	Title       string    `json:"title"`
	Body        string    `json:"body,omitempty"`
	Open        bool      `json:"open"`
	Draft       bool      `json:"draft,omitempty"`
	Merged      bool      `json:"merged,omitempty"`
	MergeCommit string    `json:"merge_commit,omitempty"`
	Head        string    `json:"head"` // branch
	HeadSHA     string    `json:"head_sha"`
	Base        string    `json:"base"` // branch
	Author      string    `json:"author"`
	Requested   []string  `json:"requested,omitempty"` // users whose review is requested
	Labels      []string  `json:"labels,omitempty"`
	UpdatedAt   time.Time `json:"updated_at,omitzero"`
}

// NewPull has the fields of a new pull request. Head is a branch of the same repository.
type NewPull struct {
	Head, Base, Title, Body string
	Draft                   bool
}

// OrExisting returns the pull request that find returns, in place of a refusal to open another one. Returns refused if
// find finds none.
func OrExisting(refused error, find func() (Pull, bool, error)) (Pull, error) {
	there, found, err := find()
	if err != nil {
		return Pull{}, errors.Join(refused, err)
	}
	if !found {
		return Pull{}, refused
	}
	return there, nil
}
