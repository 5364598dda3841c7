// Package crash holds the tests that end brokers without warning: kill -9 at
// named steps and at random under load, and the loss of power on a disk in
// memory. It owns no code that runs outside tests.
package crash
