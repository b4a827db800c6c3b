package executor

import "github.com/ramus-dev/ramus/tasks/workflow"

// On says which events start a workflow.
type On = workflow.On

// EventsOf returns the events that start the workflow of a file. The rest of the file is not checked.
func EventsOf(file string, text []byte) (On, error) {
	return workflow.ReadOn(file, text)
}
