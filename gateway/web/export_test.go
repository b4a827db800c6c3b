package web

// Prose is prose.
var Prose = prose
