// Package consumergroups drives consumer groups against the built binary: their
// members come, leave, crash and come back, and so does the server. It owns no
// code that runs outside tests.
package consumergroups
