package acp

import (
	"context"
	"encoding/json"

	sdk "github.com/coder/acp-go-sdk"
)

// dispatch passes a message of the agent to the client.
func (c *Conn) dispatch(ctx context.Context, method string, params json.RawMessage) (any, *sdk.RequestError) {
	switch method {
	case sdk.ClientMethodSessionUpdate:
		_, u, err := ParseUpdate(params)
		if err != nil {
			return nil, invalid(err)
		}
		if !c.replays.Load() {
			c.client.Update(ctx, u)
		}
		return nil, nil
	case sdk.ClientMethodSessionRequestPermission:
		return c.permit(ctx, params)
	case sdk.ClientMethodFsReadTextFile:
		return answer(ctx, params, func(ctx context.Context, r sdk.ReadTextFileRequest) (any, error) {
			text, err := c.client.ReadFile(ctx, r)
			return sdk.ReadTextFileResponse{Content: text}, err
		})
	case sdk.ClientMethodFsWriteTextFile:
		return answer(ctx, params, func(ctx context.Context, r sdk.WriteTextFileRequest) (any, error) {
			return sdk.WriteTextFileResponse{}, c.client.WriteFile(ctx, r)
		})
	case sdk.ClientMethodTerminalCreate:
		return answer(ctx, params, func(ctx context.Context, r sdk.CreateTerminalRequest) (any, error) {
			id, err := c.client.StartTerminal(ctx, r)
			return sdk.CreateTerminalResponse{TerminalId: id}, err
		})
	case sdk.ClientMethodTerminalOutput:
		return answer(ctx, params, func(ctx context.Context, r sdk.TerminalOutputRequest) (any, error) {
			return c.client.TerminalOutput(ctx, r.TerminalId)
		})
	case sdk.ClientMethodTerminalWaitForExit:
		return answer(ctx, params, func(ctx context.Context, r sdk.WaitForTerminalExitRequest) (any, error) {
			exit, err := c.client.AwaitTerminal(ctx, r.TerminalId)
			return sdk.WaitForTerminalExitResponse{ExitCode: exit.ExitCode, Signal: exit.Signal}, err
		})
	case sdk.ClientMethodTerminalKill:
		return answer(ctx, params, func(ctx context.Context, r sdk.KillTerminalRequest) (any, error) {
			return sdk.KillTerminalResponse{}, c.client.KillTerminal(ctx, r.TerminalId)
		})
	case sdk.ClientMethodTerminalRelease:
		return answer(ctx, params, func(ctx context.Context, r sdk.ReleaseTerminalRequest) (any, error) {
			return sdk.ReleaseTerminalResponse{}, c.client.ReleaseTerminal(ctx, r.TerminalId)
		})
	}
	return nil, sdk.NewMethodNotFound(method)
}

// permit decodes a request for permission itself. The SDK would refuse one
// whose tool call has a content that only newer agents send.
func (c *Conn) permit(ctx context.Context, params json.RawMessage) (any, *sdk.RequestError) {
	var r struct {
		Options  []Option `json:"options"`
		ToolCall Tool     `json:"toolCall"`
	}
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, invalid(err)
	}
	id, err := c.client.Permit(ctx, Question{Tool: r.ToolCall, Options: r.Options})
	if err != nil {
		return nil, sdk.NewInternalError(map[string]any{"error": err.Error()})
	}
	if id == "" || ctx.Err() != nil {
		return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeCancelled()}, nil
	}
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(sdk.PermissionOptionId(id))}, nil
}

func invalid(err error) *sdk.RequestError {
	return sdk.NewInvalidParams(map[string]any{"error": err.Error()})
}

// answer decodes a request and answers it by f.
func answer[T any](ctx context.Context, params json.RawMessage, f func(context.Context, T) (any, error)) (any, *sdk.RequestError) {
	var r T
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, invalid(err)
	}
	got, err := f(ctx, r)
	if err != nil {
		return nil, sdk.NewInternalError(map[string]any{"error": err.Error()})
	}
	return got, nil
}
