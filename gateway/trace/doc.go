// Package trace sends the course of runs to a collector of OpenTelemetry traces, by OTLP over HTTP with JSON.
//
// # Nouns
//
// A run is one trace. Its spans are made of the run's journal when the run has ended, so the work itself does nothing for
// them, and a run that several processes have worked on is one trace too. The ids of a trace and of its first span follow
// from the name of the run. So the reply to a mention, which comes later, and the runs of sub-workflows join the trace
// without being told its id.
//
// An [Exporter] converts runs and sends them in the background. Its queue is bounded. Spans that it cannot send within a
// minute it drops and counts, because a trace is no record. The journal is.
//
// # Untrusted input
//
// Containers get no trace context, and none that comes from outside is used. Texts of the journal are bounded, and are
// without secrets already.
package trace
