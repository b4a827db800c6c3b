// Package addition has the additional repositories of callers.
//
// A caller may work in additional repositories. It has a branch of its name in each, and their work trees are in the same
// container. The runs, their evidence, the settings and the memory of agents are in the caller's own repository alone.
//
// A [Planner] determines the additional repositories of a run, and makes the branches before the run is claimed. [Trees]
// are their work trees, for as long as the executor holds the caller. A [Step] commits them. They are committed first and
// the caller's own repository last. So a commit there proves that all others were made. [Reviewer] writes the evidence.
//
// Nothing here decides on rights. The request's Permit gets the planned run with all its repositories.
package addition
