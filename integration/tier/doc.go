// Package tier holds the tests of the main job on real processes: the built
// binary, a real MinIO, and clients of several languages. It owns no code that
// runs outside tests.
package tier
