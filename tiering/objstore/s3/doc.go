// Package s3 is the object store driver for AWS S3 and what speaks its protocol,
// on aws-sdk-go-v2.
//
// Owns: the client and its connections; checksum headers; the classes and
// remedies of S3's errors. May not touch: files. It retries nothing (the guard
// does) and buffers no body: a body with a known checksum is read once, payloads
// are not signed (the checksum header is), and over plain HTTP the SDK gets a
// seekable reader.
//
// Goroutines: those of net/http; Close ends idle connections.
//
// Errors: *objstore.Error.
package s3
