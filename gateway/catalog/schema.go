package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Schemas of properties that several tools have.
const (
	RepoProperty   = `{"type":"string","description":"The repository to work in. Leave it out to take the default one.","maxLength":100}`
	BaseProperty   = `{"type":"string","description":"The branch to start from. Leave it out to take the repository's own base.","maxLength":200}`
	AgentProperty  = `{"type":"string","description":"The coding agent, by its name in the configuration. Leave it out to take the default.","maxLength":64}`
	TaskIDProperty = `{"type":"string","description":"The task's id.","minLength":1,"maxLength":100}`
)

// DescriptionProperties are the properties that describe a new task.
var DescriptionProperties = fmt.Sprintf(`"description":{"type":"string","description":"What to build or fix (be specific).","minLength":1,"maxLength":%d},`+
	`"context":{"type":"string","description":"Relevant context: current behaviour, desired behaviour, affected files.","maxLength":%d,"default":""}`, MaxTaskText, MaxTaskText)

// NoArguments is the schema of a tool without arguments.
var NoArguments = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)

// PromptProperty returns the schema of a prompt with a description.
func PromptProperty(description string) string {
	return `{"type":"string","description":"` + description + `","minLength":1,"maxLength":20000}`
}

// Object returns the schema of an object with the given properties and no others.
func Object(properties string, required ...string) json.RawMessage {
	needed := ""
	if len(required) > 0 {
		needed = `"required":["` + strings.Join(required, `","`) + `"],`
	}
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},` + needed + `"additionalProperties":false}`)
}
