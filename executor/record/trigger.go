package record

import "strings"

// SourceTrigger is the source of the origin of a run that a trigger of the server's configuration asked for.
const SourceTrigger = "trigger"

// TriggerMailbox is the end of the address of a trigger as an author. The address belongs to nobody.
const TriggerMailbox = "@trigger.invalid"

// TriggerSession returns the session of the origin of a trigger's runs.
func TriggerSession(trigger string) string { return SourceTrigger + ":" + trigger }

// Trigger returns the name of the trigger that asked for the run, or for the task that the run works for. Returns "" if
// somebody else did.
func (r Run) Trigger() string {
	if r.Origin != nil && r.Origin.Source == SourceTrigger {
		return strings.TrimPrefix(r.Origin.Session, SourceTrigger+":")
	}
	if name, ok := strings.CutSuffix(r.Asker.Email, TriggerMailbox); ok {
		return name
	}
	return ""
}
