package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-github/v66/github"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/internal/text"
)

// maxThreads bounds the threads of a pull request that are read.
const maxThreads = 1000

// Only GraphQL has the threads of a pull request, and whether they are resolved.
const (
	threadsQuery = `query($owner:String!,$name:String!,$number:Int!,$after:String){repository(owner:$owner,name:$name){pullRequest(number:$number){` +
		`reviewThreads(first:100,after:$after){nodes{id isResolved resolvedBy{login} comments(first:1){nodes{databaseId}}} pageInfo{hasNextPage endCursor}}}}}`
	resolveMutation   = `mutation($id:ID!){resolveReviewThread(input:{threadId:$id}){thread{id isResolved}}}`
	unresolveMutation = `mutation($id:ID!){unresolveReviewThread(input:{threadId:$id}){thread{id isResolved}}}`
)

// Threads returns the threads on lines of a pull request, the oldest first, and 1,000 at most. It is a method of [forge.Resolver].
func (c *Client) Threads(ctx context.Context, repo forge.Name, number int) (list []forge.Thread, err error) {
	variables := map[string]any{"owner": repo.Owner, "name": repo.Repo, "number": number}
	for n := 0; n < maxThreads; { // threads, and pages without threads
		var page struct {
			Repository struct {
				PullRequest struct {
					ReviewThreads struct {
						Nodes []struct {
							ID         string
							IsResolved bool
							ResolvedBy struct{ Login string }
							Comments   struct {
								Nodes []struct{ DatabaseID int64 }
							}
						}
						PageInfo struct {
							HasNextPage bool
							EndCursor   string
						}
					}
				}
			}
		}
		if err := c.graphQL(ctx, request{what: "list the threads of a pull request", repo: repo}, threadsQuery, variables, &page); err != nil {
			return nil, err
		}
		threads := page.Repository.PullRequest.ReviewThreads
		n += max(len(threads.Nodes), 1)
		for _, t := range threads.Nodes {
			if len(t.Comments.Nodes) > 0 {
				list = append(list, forge.Thread{ID: t.ID, First: t.Comments.Nodes[0].DatabaseID, Resolved: t.IsResolved,
					By: text.Clip(t.ResolvedBy.Login, 100)})
			}
		}
		if !threads.PageInfo.HasNextPage || variables["after"] == threads.PageInfo.EndCursor {
			break
		}
		variables["after"] = threads.PageInfo.EndCursor
	}
	return list, nil
}

// Resolve resolves a thread of a pull request, or opens it again. It is a method of [forge.Resolver].
func (c *Client) Resolve(ctx context.Context, repo forge.Name, thread string, resolved bool) error {
	mutation := unresolveMutation
	if resolved {
		mutation = resolveMutation
	}
	return c.graphQL(ctx, request{what: "resolve a thread", repo: repo, write: true}, mutation, map[string]any{"id": thread}, nil)
}

// graphQL makes a request of GraphQL, whose errors come with the status of success.
func (c *Client) graphQL(ctx context.Context, r request, query string, variables map[string]any, into any) error {
	return c.call(ctx, r, func(ctx context.Context, gh *github.Client) error {
		at := *gh.BaseURL
		at.Path = strings.TrimSuffix(strings.TrimSuffix(at.Path, "/"), "/v3") + "/graphql"
		req, err := gh.NewRequest(http.MethodPost, at.String(), map[string]any{"query": query, "variables": variables})
		if err != nil {
			return err
		}
		answer := struct {
			Data   any
			Errors []struct{ Type, Message string }
		}{Data: into}
		if _, err := gh.Do(ctx, req, &answer); err != nil || len(answer.Errors) == 0 {
			return err
		}
		e := answer.Errors[0]
		message := text.Clip(e.Message, 500)
		switch e.Type {
		case "NOT_FOUND":
			return &forge.RefusedError{Forge: site, Status: http.StatusNotFound, Message: message}
		case "RATE_LIMITED":
			return &retry.Temporary{Err: errors.New(message), Limited: true}
		case "":
			return fmt.Errorf("%s answers: %s", site, message)
		}
		return &forge.RefusedError{Forge: site, Status: http.StatusForbidden, Message: message}
	})
}
