// Package services runs the services that a repository or a step wants next to its container.
//
// # Nouns
//
// A [Starter] starts services for the containers of a server. A [Set] has the services of one caller's container. A service runs in a
// container of its own, which the same engine starts, and which has neither a network, a door nor a work tree.
//
// # How a service is reached
//
// Inside the caller's container the name of a service means an address of the loopback, such as 127.0.1.1. The runner there
// listens at it, and the host connects each connection with the service's port, by way of the two SSH connections. So neither
// container reaches anything else of the other one.
//
// # Durability
//
// A service ends with its container. A restart of the server ends neither. The next step of the caller connects them again.
package services
