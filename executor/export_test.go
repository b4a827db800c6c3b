package executor

import "time"

// SetSealEvery makes a run that could not be sealed wait only so long.
func (x *Executor) SetSealEvery(d time.Duration) { x.sealEvery = d }
