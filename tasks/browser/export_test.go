package browser

// Actions are those of a step, for the tests of the schema.
var Actions = actions
