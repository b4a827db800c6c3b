package object

// Object is an object in memory.
type Object struct {
	Kind string // blob, tree, commit or tag
	Data []byte
}
