// Package wire is the Kafka protocol's transport below the messages: frames,
// request and response headers, the table of versions that are served, the
// shape of every request, and responses made of bytes and file regions. The
// messages themselves are encoded and decoded by kmsg.
//
// Owns: pooled buffers (Buffer), frames read from a stream (Reader), headers
// (Request), the version table (Supported), bounds on what a request may make
// its decoder allocate (CheckShape), responses (Out) and the way that they reach
// a socket (Sender, Gate).
//
// May not touch: anything of ours but metadata/disk. It knows no topic, no
// partition and no error code.
//
// Goroutines: none.
//
// Errors: ErrFrameSize for a frame of a negative, too small or too large size,
// ErrMalformed for a request that cannot be decoded, ErrUnsupported for an API
// or version that is not served; the caller closes the connection on each.
// ErrShortRegion where a file ended before the region sent from it.
//
// Invariants:
//
//	W1  A Region placed in an Out is released exactly once: when it was copied,
//	    when it was sent, or when the Out is abandoned or fails.
//	W2  The bytes of a frame are those announced by its length: a response that
//	    cannot be completed ends the connection.
//	W3  A frame's bytes belong to its Reader and are valid until the next call
//	    of Next.
//	W4  No request makes its decoder allocate more than a small multiple of its
//	    own bytes plus a constant.
package wire
