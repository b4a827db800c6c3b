package catalog

// The names of the tools for comments on lines.
const (
	ToolComments = "list_comments"
	ToolAnswer   = "answer_comment"
	ToolResolve  = "resolve_comment"
	ToolComment  = "comment_on_lines"
)

const threadProperty = `"thread":{"type":"string","description":"The id of the thread.","minLength":1,"maxLength":100}`

const answerProperty = `"text":{"type":"string","description":"What you did about it, or why you did nothing, in a sentence or two. Markdown.","minLength":1,"maxLength":20000}`

// The tools for comments on lines of an agent's own branch.
var (
	ListComments = Tool{ToolComments,
		`The comments of people on lines of your branch, as threads: their files and lines as they are now, whether the lines have changed since, and what was said. Open ones only, unless all is set.`,
		Object(`"all":{"type":"boolean","description":"Those that are resolved, too."}`)}
	AnswerComment = Tool{ToolAnswer,
		`Answers in a thread of comments on lines of your branch, where people see it next to the lines. Commit your change first. A second answer with the same words does nothing.`,
		Object(threadProperty+`,`+answerProperty, "thread", "text")}
	ResolveComment = Tool{ToolResolve,
		`Closes a thread of comments that is done, beyond doubt. Otherwise answer, and leave that to the person.`,
		Object(threadProperty, "thread")}
)

// ReportFinding is the tool of an agent that reviews a new pull request.
var ReportFinding = Tool{"report_finding",
	`Reports a fault at lines of the pull request that you review, where people see it. thread is empty if it is not said, and why says the reason.`,
	Object(`"path":{"type":"string","description":"The file.","minLength":1,"maxLength":4096},`+
		`"line":{"type":"integer","description":"The first line, from 1.","minimum":1},`+
		`"to":{"type":"integer","description":"The last line; the first one if it is missing.","minimum":1},`+
		`"kind":{"type":"string","description":"A short name of the kind of fault, such as unchecked-error; the same for all of the kind.","minLength":1,"maxLength":60},`+
		`"text":{"type":"string","description":"What goes wrong, when, and what to do, in two or three sentences.","minLength":1,"maxLength":4000}`, "path", "line", "kind", "text")}

// CallerProperty names a workspace.
const CallerProperty = `"caller":{"type":"string","description":"The workspace, by its name or its branch.","minLength":1,"maxLength":300}`

// The same tools for assistants, which name the workspace.
var (
	ListCommentsOf = Tool{ToolComments,
		`The comments on lines of a workspace, as threads: their files and lines as they are now, whether the lines have changed since, and what was said. Open ones only, unless all is set.`,
		Object(CallerProperty+`,"all":{"type":"boolean","description":"Those that are resolved, too."}`, "caller")}
	AnswerCommentOf  = Tool{ToolAnswer, `Answers in a thread of comments on lines, without telling an agent.`, Object(CallerProperty+`,`+threadProperty+`,`+answerProperty, "caller", "thread", "text")}
	ResolveCommentOf = Tool{ToolResolve, `Closes a thread of comments.`, Object(CallerProperty+`,`+threadProperty, "caller", "thread")}
	CommentOnLines   = Tool{ToolComment,
		`Comments on lines of a workspace. All comments together are one prompt to its agent, unless quiet is set.`,
		Object(CallerProperty+`,"comments":{"type":"array","minItems":1,"maxItems":50,"items":{"type":"object","properties":{`+
			`"path":{"type":"string","description":"The file, at the end of the branch.","maxLength":4096},`+
			`"line":{"type":"integer","description":"The first line, from 1.","minimum":1},`+
			`"to":{"type":"integer","description":"The last line; the first one if it is missing.","minimum":1},`+
			`"side":{"type":"string","description":"old for the file as it was at the base.","enum":["new","old"]},`+
			`"thread":{"type":"string","description":"The thread that it answers in, in place of path and line.","maxLength":100},`+
			`"text":{"type":"string","description":"A block that begins with three backticks and the word suggestion has lines that take the place of these.","minLength":1,"maxLength":20000}},`+
			`"required":["text"],"additionalProperties":false}},`+
			`"note":{"type":"string","description":"Words before the comments.","maxLength":20000},`+
			`"key":{"type":"string","description":"Makes it idempotent: the same key sends the comments once.","maxLength":200},`+
			`"agent":`+AgentProperty+`,"session":{"type":"string","description":"The label of the session with the agent.","maxLength":200},`+
			`"quiet":{"type":"boolean","description":"Tell no agent."}`, "caller", "comments")}
)
