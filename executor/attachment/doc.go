// Package attachment keeps the files that people attach to prompts of agents.
//
// A file arrives with a name from a person's machine, and gets one that a folder and git can hold ([Named]). [Files]
// are the files of a run's prompts. They are kept durably before the prompt is acknowledged, in the run's live folder,
// and are sealed into the run's ref with it. An agent finds them in a folder of its container outside the work tree, so
// that they are not committed, and sees pictures at once.
//
// Names and contents are hostile. A picture is recognized by its content.
package attachment
