package modeltest

// Question is what a client asked, in no provider's words.
type Question struct {
	Provider, Model string
	System          string
	Tools           []string // their names
	// Prompt is what a person said last, Results what the tools that were called
	// since then gave back, in order.
	Prompt  string
	Results []string
	// Said is all texts of persons and tools so far.
	Said string
}

// Answer is what the model says: words, and the tools that it calls.
type Answer struct {
	Text  string
	Calls []ToolCall
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Name  string
	Input map[string]any
}
