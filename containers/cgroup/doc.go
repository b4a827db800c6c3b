// Package cgroup limits the resources of processes, by control groups of the Linux kernel.
//
// # Nouns
//
// A [Root] is the group below which groups are made. [Find] looks for one. The groups of one container are the folders
// that [Root.Folders] names. Version 2 of control groups needs one folder, and version 1 one for each controller.
//
// # Invariants
//
// Groups are made below the group of this process, so that a limit on ramus as a whole holds for everything it starts.
// Find leaves no group. A Root without groups is valid. It limits nothing, and [Root.Usable] and [Root.Has]
// report that.
//
// # Untrusted input
//
// Processes in a group are hostile. They may fork while the group is removed, and use all that the limits allow.
package cgroup
