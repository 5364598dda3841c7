// Package minio is the object store driver for MinIO and what speaks S3's
// protocol, on minio-go. It does what the driver on the AWS SDK does, for people
// who want a second, independent client.
//
// Owns: the client and its connections. May not touch: files. It retries nothing
// (the guard does) and buffers no body: a body with a known checksum is read
// once, payloads are not signed (the checksum header is).
//
// Credentials that are not set come from the environment (AWS_ACCESS_KEY_ID or
// MINIO_ROOT_USER and the like), from ~/.aws/credentials, or from the machine's
// role.
//
// Goroutines: those of net/http; Close ends idle connections.
//
// Errors: *objstore.Error.
package minio
