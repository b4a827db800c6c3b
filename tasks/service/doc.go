// Package service reads the descriptions of services.
//
// # Nouns
//
// A [Service] is a program that works next to a task's container, such as a database. Commands of the container reach it by its
// name, as "db:5432". It runs the program of an image, or a command of the machine for engines without images. It is ready when
// its Ready command succeeds.
//
// # Invariants
//
// A Service that [Parse] returned is within the bounds of this package. It is pure data and survives JSON. Nothing in it is secret,
// because it comes from a file of a repository.
package service
