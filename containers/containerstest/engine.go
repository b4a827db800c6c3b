package containerstest

import "github.com/ramus-dev/ramus/containers"

// Engine is an engine with the abilities that both engines have. A fake of a test embeds one and overrides some methods, and keeps
// the abilities in this way.
type Engine interface {
	containers.Engine
	containers.Sidecars
	containers.Processes
	containers.TaskUser
	containers.Assigner
}
