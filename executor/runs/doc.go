// Package runs reads the runs of all callers, those at work as they are now and the others as they were sealed.
//
// # Nouns
//
// A [Reader] finds runs and callers by their names, and reads the events, outputs, files and evidence of runs. A
// [CallerStatus] is a caller with its branch and its container. [Live] are the runs that work in this process.
//
// # Invariants
//
// A Reader changes nothing. It looks at the runs at work before the index, because a run that ends is in the index before
// it leaves them. So a run is never seen as it was when it began after it has been seen as ended.
//
// # Where runs are kept
//
// The journal and the outputs of a run at work are in DATA/live. Those of a sealed run are at its ref, and large ones in
// the artifact store.
package runs
