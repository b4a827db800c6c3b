package gateway

import "encoding/json"

// Tool is one thing that a model or an agent may ask for.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

// The tools.
const (
	ToolStart      = "start_code_session"
	ToolResume     = "resume_code_session"
	ToolBrowser    = "browser_test"
	ToolScreenshot = "capture_screenshot"
	ToolFallback   = "fallback_session"
)

// Catalog is the tools of a policy: the fallback alone, or all. It is built before any model
// or agent sees anything: what is not in it does not exist for them.
func Catalog(p Policy) []Tool { panic("not built") }
