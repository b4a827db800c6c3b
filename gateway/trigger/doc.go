// Package trigger starts work when something happens outside of ramus.
//
// # Nouns
//
// A [Trigger] is an entry of the server's configuration. It names the cause (a [Schedule], a [Webhook], issues and
// failed checks at GitHub, pushes) and the work, which is a workflow of the base or a task for the engineer. An [Event]
// is one occurrence of the cause. It has a key, and values that its trigger takes from it.
//
// # Durability
//
// An event is claimed as a run before it is acknowledged. The run's caller follows from the trigger and the key of the
// event, so an event that is delivered twice runs once. The next [Triggers.Open] continues the runs that were claimed
// and whose end was not counted. A file for each trigger has the last handled time of its schedule, the last seen tips
// of branches, and its failures. If the file is lost, the trigger begins as a new one.
//
// # Untrusted input
//
// The content of every event is hostile, even if its signature is good. Its values are bounded, and are data. They
// become inputs of workflows, which quote them in commands, or JSON in the context of a task. No text of an event is
// ever part of a template. Triggers are read from the server's configuration only, so no branch can define one.
package trigger
