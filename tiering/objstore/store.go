package objstore

import (
	"context"
	"io"
	"iter"
	"time"
)

// Store is a bucket, or a folder, of immutable objects. All methods may be
// called from several goroutines at once. Errors are *Error.
type Store interface {
	// Put writes an object and returns once it is durable and verified. The
	// body is read during the call only, possibly by several goroutines.
	// With o.IfAbsent an existing key fails with ErrExists and stays as it
	// is; otherwise it is replaced as a whole. A body that does not match
	// o.CRC32C fails with ErrChecksum and leaves nothing behind. After any
	// other error the object may or may not be there.
	Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error)
	// Get reads n bytes from position off, or, with n < 0, all from off on.
	// A range that ends past the object is cut short; one that starts at or
	// past its end, and n == 0, fail with ErrRange. The caller closes the
	// reader; a body that breaks off fails with an error other than io.EOF.
	// ctx governs the reader too.
	Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// Head describes an object, or fails with ErrNotFound. (S3 does not tell
	// a missing bucket from a missing key here.)
	Head(ctx context.Context, key string) (Info, error)
	// Delete removes objects durably, in as few requests as possible. Keys
	// that do not exist are no error. After an error any subset may be gone;
	// it is safe to repeat the whole call.
	Delete(ctx context.Context, keys ...string) error
	// List yields the objects whose keys start with prefix and are greater
	// than after, in byte order of the keys. It ends after an error. Objects
	// put or deleted meanwhile may or may not appear.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
	// Location says where the objects are.
	Location() Location
	// Close releases connections and descriptors. It is idempotent.
	Close() error
}

// PutOptions say how an object is written.
type PutOptions struct {
	// IfAbsent makes the put fail with ErrExists where the key exists.
	IfAbsent bool
	// CRC32C (Castagnoli) of the whole body, where HasCRC is set. Giving it
	// saves a pass over the body.
	CRC32C uint32
	HasCRC bool
	// ContentType is the MIME type; empty: application/octet-stream.
	ContentType string
}

// Info describes an object.
type Info struct {
	Key   string
	Bytes int64
	// CRC32C of the whole object, where the store knows it (HasCRC). List
	// never does.
	CRC32C   uint32
	HasCRC   bool
	Modified time.Time
}

// Location names a store for people and for comparison: two equal Locations
// hold the same objects, stores in memory apart.
type Location struct {
	Scheme   string // s3, file or mem
	Endpoint string // host and port; empty for AWS itself, file and mem
	Bucket   string // bucket, or the folder of a file store
	Prefix   string // without slashes at either end; may be empty
}

// String is the location as a URL, without secrets.
func (l Location) String() string {
	switch l.Scheme {
	case SchemeFile:
		return "file://" + l.Bucket
	case SchemeMem:
		return "mem:"
	}
	s := l.Scheme + "://" + l.Bucket
	if l.Prefix != "" {
		s += "/" + l.Prefix
	}
	if l.Endpoint != "" {
		s += " at " + l.Endpoint
	}
	return s
}

// Key joins the location's prefix and the parts with slashes.
func (l Location) Key(parts ...string) string {
	key := l.Prefix
	for _, p := range parts {
		if key != "" {
			key += "/"
		}
		key += p
	}
	return key
}

// Verb names an operation in limits, metrics and errors.
type Verb string

// The verbs. The last four are the steps of an upload in parts.
const (
	VerbPut      Verb = "put"
	VerbGet      Verb = "get"
	VerbHead     Verb = "head"
	VerbDelete   Verb = "delete"
	VerbList     Verb = "list"
	VerbBegin    Verb = "upload_begin"
	VerbPart     Verb = "upload_part"
	VerbComplete Verb = "upload_complete"
	VerbAbort    Verb = "upload_abort"
)

// Verbs lists all verbs in a fixed order.
func Verbs() []Verb {
	return []Verb{VerbPut, VerbGet, VerbHead, VerbDelete, VerbList, VerbBegin, VerbPart, VerbComplete, VerbAbort}
}
