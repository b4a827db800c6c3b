// Command ramus is the one binary of ramus: server, command line and runner.
package main

func main() {}
