// Package cgroup limits what the processes of a container use, by control groups of the Linux kernel.
//
// # Nouns
//
// A [Root] is the place below which groups are made. [Find] looks for one. The groups of one container are the folders that
// [Root.Folders] names: one with version 2 of control groups, one for each controller with version 1.
//
// # Invariants
//
// Groups are made below the group of this process, so that a limit on ramus as a whole holds for everything it starts.
// Find leaves nothing behind. A Root without groups is valid: it limits nothing, and tells so ([Root.Usable], [Root.Has]).
//
// # What is hostile
//
// Processes in a group. They may fork while the group is removed, and use all that the limits allow.
package cgroup
