// Package s3proto is what every driver of the S3 protocol shares, whatever
// client library it is made on: the settings of a bucket and their checks, the
// transport, checksum headers, bodies that are read once, and the classes and
// remedies of the errors of S3, MinIO, versitygw and others.
//
// Owns: Config, Session, Sums. May not touch: files, client libraries.
//
// Goroutines: none. Errors: *objstore.Error.
package s3proto
