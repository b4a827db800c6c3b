// Package standin is the folder of servers in place of Slack, GitHub, models and agents. They are not the product.
//
// Tests and demos must reach nothing outside of the machine. So each of these services has a stand-in, an HTTP server with state
// that speaks the service's protocol, refuses the requests that the service refuses, and can be slow, limited and down. The packages
// whose names end with "test" are for tests. The programs whose names end with "-standin" put them in the terminal, for the demos.
package standin
