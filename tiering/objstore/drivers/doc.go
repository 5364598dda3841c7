// Package drivers opens the object store that a URL and settings name. It is
// the only package that knows all drivers.
//
// Owns: Config and Open. May not touch: objects. Goroutines: none. Errors:
// *objstore.Error, and objstore.ErrInvalidURL.
package drivers
