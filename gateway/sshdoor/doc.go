// Package sshdoor lets people into callers' containers by SSH. `ssh CALLER@HOST` opens the terminal that `ramus shell` and
// pages show, `ssh CALLER@HOST COMMAND` is `ramus exec`, and files and ports of the container can be reached. The server of
// gitd has the connections and the keys.
package sshdoor
