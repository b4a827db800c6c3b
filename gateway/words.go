package gateway

// Words are what a mention says, read as a command; a text that is none is for the agent.
type Words struct {
	// Verb is one of run, exec, test, lint, build, diff, log, status, why, merge, stop,
	// retry, help; empty: plain words for the agent.
	Verb string
	// Workflow and Input are run's.
	Workflow string
	Input    map[string]any
	// Command is exec's: the text of the code block, or the rest of the line.
	Command string
	// Args are the other verbs' words.
	Args []string
	// Repo, Base and Agent were named by repo:NAME, base:BRANCH and agent:NAME,
	// which are taken out of Text.
	Repo, Base, Agent string
	// Text is all the rest, for the agent.
	Text string
}

// ParseWords reads the text of a mention, prefix and mention of ramus taken out.
// The error is for the person who wrote it, and says what to write.
func ParseWords(text string) (Words, error) { panic("not built") }
