package catalog

import (
	"encoding/json"
	"fmt"
)

// MaxTaskText limits a task's description and context together, in bytes. Both must fit into the first prompt of an
// agent, together with the template around them.
const MaxTaskText = 96_000

// Limits of tasks that agents of tasks submit.
const (
	MaxTaskDepth    = 3 // of nested tasks
	MaxTaskChildren = 5 // of one task
)

// Limits of the posts of one agent's run.
const (
	MaxReplies = 30 // in its own thread
	MaxPosts   = 10 // in channels
)

// PostMessage returns the tool that posts in one of the channels.
func PostMessage(channels []string) Tool {
	ids, _ := json.Marshal(channels) // a list of texts can be encoded
	return Tool{ToolPost, fmt.Sprintf(`Posts a message in one of these channels of Slack, outside of any thread, for people who do not follow your work: one line, when something has happened that they must know. One a minute and %d in all; told is false when this one was left out. It mentions nobody.`, MaxPosts),
		Object(`"channel":{"type":"string","description":"The id of the channel.","enum":`+string(ids)+
			`},"text":{"type":"string","description":"The message, in a line.","minLength":1,"maxLength":1000}`,
			"channel", "text")}
}

// The names of the task tools.
const (
	ToolSubmit  = "submit_task"
	ToolStatus  = "get_task_status"
	ToolActive  = "list_active_tasks"
	ToolThread  = "reply_to_thread"
	ToolSpawn   = "spawn_task"
	ToolMessage = "message_task"
	ToolCancel  = "cancel_task"
	ToolPost    = "post_message"
)

// The tools of an agent that works for a task.
var (
	ReplyToThread = Tool{ToolThread,
		`Says in your own thread, where people follow it, what you are doing: one line, at milestones. The thread takes one message a minute; told is false when this one was left out. Begin, failure and end are told without you.`,
		Object(`"text":{"type":"string","description":"What you are doing, in a line.","minLength":1,"maxLength":500}`, "text")}
	SpawnTask = Tool{ToolSpawn,
		fmt.Sprintf(`Hands a part of your task over to another agent, as a task of its own in the same repository, with its own branch and pull request. Returns immediately with task_id. It does not see what you have not pushed, nor this conversation: describe it completely. At most %d tasks, and not deeper than %d.`, MaxTaskChildren, MaxTaskDepth),
		Object(DescriptionProperties+`,"base":`+BaseProperty+`,"agent":`+AgentProperty+
			`,"key":{"type":"string","description":"Makes it idempotent: asking again with the same key is the same task.","maxLength":100}`, "description")}
	ChildStatus = Tool{ToolStatus,
		`Get current status of a task that you asked for: submitted, running, awaiting_review, addressing_comments, complete or failed; its pull request once there is one; what went wrong if it failed.`,
		Object(`"task_id":`+TaskIDProperty, "task_id")}
	ActiveChildren = Tool{ToolActive, `List all non-completed tasks that you asked for.`, NoArguments}
	MessageTask    = Tool{ToolMessage, `Gives a task that you asked for something more to do.`,
		Object(`"task_id":`+TaskIDProperty+`,"text":`+PromptProperty("What to say to its agent.")+
			`,"key":{"type":"string","description":"Saying it again with the same key says it once.","maxLength":100}`,
			"task_id", "text")}
	CancelTask = Tool{ToolCancel, `End a task that you asked for. Its branch is kept, its pull request stays as it is.`,
		Object(`"task_id":`+TaskIDProperty, "task_id")}
)

// TaskTools are the tools of an agent that works for a task, in the order of lists.
var TaskTools = []Tool{ReplyToThread, SpawnTask, ChildStatus, ActiveChildren, MessageTask, CancelTask}
