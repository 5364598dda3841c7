// Package watch is what the rest of a node holds of the metadata plane: the
// latest image, the catalog of remote segments, notifications of changes, and a
// way to ask the controller for one.
//
// Owns: the interfaces below, nothing else. metadata/node implements them. May
// not touch: files, sockets, the controller. Goroutines: none.
//
// # Invariants
//
//   - W1 Once Submit returned without an error, Image and Catalog of the same
//     node show the change (read your writes).
//   - W2 The images that Image returns never go back, and neither do those that
//     a subscriber is given: each To is the next From.
//   - W3 Images and everything reachable from them never change; hold them as
//     long as you like.
//
// Errors: refused requests answer the sentinels of metadata/request. Catalog
// reads answer catalog corruption and store failures as they are; neither is
// worth a retry.
package watch
