package objstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// PartUploader is what a driver offers besides Store where large objects are
// uploaded in parts. The steps are separate so that each of them is retried,
// limited and counted by itself.
type PartUploader interface {
	// PartBytes is the size of a part, and of the largest body of a plain Put.
	PartBytes() int64
	// BeginUpload begins an upload of size bytes. o is that of the Put.
	BeginUpload(ctx context.Context, key string, size int64, o PutOptions) (Upload, error)
	// PutPart uploads part number (from 1); the store verifies crc.
	PutPart(ctx context.Context, u Upload, number int, body Body, crc uint32) (Part, error)
	// CompleteUpload makes the object visible under its key, as a Put
	// would. o.CRC32C is set.
	CompleteUpload(ctx context.Context, u Upload, parts []Part, o PutOptions) (Info, error)
	// AbortUpload removes the parts. An unknown upload is no error.
	AbortUpload(ctx context.Context, u Upload) error
	// ListUploads yields the uploads under way whose keys start with prefix.
	ListUploads(ctx context.Context, prefix string) iter.Seq2[Upload, error]
}

// Upload is an upload in parts that is under way.
type Upload struct {
	Key   string
	ID    string
	Bytes int64 // of the whole object; 0 in ListUploads
	Begun time.Time
}

// Part is an uploaded part.
type Part struct {
	Number int
	Tag    string // the store's name for the content
	Bytes  int64
	CRC32C uint32
	Sum    string // another checksum that the driver has to repeat on completion
}

const (
	// partsInFlight is how many parts of one upload go at a time.
	partsInFlight = 4
	// abortTimeout bounds the clean-up of a failed upload.
	abortTimeout = 30 * time.Second
)

// stepRunner runs one step of an upload: Guard's retries it, the plain one calls it.
type stepRunner func(ctx context.Context, verb Verb, key string, bytes int64, step func(ctx context.Context, body bodyWrapper) error) error

// bodyWrapper observes the reading of a body.
type bodyWrapper func(Body) Body

func runPlainly(ctx context.Context, _ Verb, _ string, _ int64, step func(context.Context, bodyWrapper) error) error {
	return step(ctx, func(b Body) Body { return b })
}

// PutInParts uploads a body in parts, each step once. It is for drivers, whose
// Put calls it above the part size.
func PutInParts(ctx context.Context, s Store, up PartUploader, key string, body Body, o PutOptions) (Info, error) {
	return putInParts(ctx, s, up, runPlainly, key, body, o)
}

func putInParts(ctx context.Context, s Store, up PartUploader, run stepRunner, key string, body Body, o PutOptions) (Info, error) {
	if o.IfAbsent {
		// The condition is checked again on completion; asking first saves
		// sending everything in vain.
		if _, err := s.Head(ctx, key); err == nil {
			return Info{}, &Error{Op: VerbPut, Key: key, Bucket: s.Location().Bucket, Endpoint: s.Location().Endpoint, Class: ErrExists}
		} else if !errors.Is(err, ErrNotFound) {
			return Info{}, err
		}
	}
	var u Upload
	err := run(ctx, VerbBegin, key, 0, func(ctx context.Context, _ bodyWrapper) (err error) {
		u, err = up.BeginUpload(ctx, key, body.Size(), o)
		return err
	})
	if err != nil {
		return Info{}, err
	}
	info, err := sendAndComplete(ctx, s, up, run, u, body, o)
	if err != nil {
		err = errors.Join(err, abort(ctx, up, run, u))
	}
	return info, err
}

// abort cleans up after a failed upload, even where the caller's time is up.
func abort(ctx context.Context, up PartUploader, run stepRunner, u Upload) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	err := run(ctx, VerbAbort, u.Key, 0, func(ctx context.Context, _ bodyWrapper) error { return up.AbortUpload(ctx, u) })
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("the parts stay until stale uploads are removed: %w", err)
	}
	return nil
}

func sendAndComplete(ctx context.Context, s Store, up PartUploader, run stepRunner, u Upload, body Body, o PutOptions) (Info, error) {
	parts, crc, err := sendParts(ctx, up, run, u, body)
	if err != nil {
		return Info{}, err
	}
	if o.HasCRC && o.CRC32C != crc {
		return Info{}, &Error{
			Op: VerbPut, Key: u.Key, Class: ErrChecksum,
			Cause: fmt.Errorf("the body has CRC32C %08x, %08x was promised", crc, o.CRC32C),
		}
	}
	o.CRC32C, o.HasCRC = crc, true
	var info Info
	var uncertain bool
	err = run(ctx, VerbComplete, u.Key, 0, func(ctx context.Context, _ bodyWrapper) (err error) {
		info, err = up.CompleteUpload(ctx, u, parts, o)
		if uncertain && (errors.Is(err, ErrExists) || errors.Is(err, ErrNotFound)) {
			// An earlier attempt may have completed it unheard.
			if same, serr := SameObject(ctx, s, u.Key, u.Bytes, crc); serr == nil && same {
				info, err = Info{Key: u.Key, Bytes: u.Bytes, CRC32C: crc, HasCRC: true}, nil
			}
		}
		uncertain = uncertain || err != nil
		return err
	})
	return info, err
}

// sendParts uploads all parts and returns them with the checksum of the whole.
func sendParts(ctx context.Context, up PartUploader, run stepRunner, u Upload, body Body) ([]Part, uint32, error) {
	size, partBytes := body.Size(), up.PartBytes()
	count := int((size + partBytes - 1) / partBytes)
	parts := make([]Part, count)
	var sent atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(partsInFlight)
	for i := range count {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			off := int64(i) * partBytes
			n := min(partBytes, size-off)
			crc, err := RangeCRC32C(body, off, n)
			if err != nil {
				return &Error{Op: VerbPart, Key: u.Key, Class: ErrInvalid, Cause: err, Remedy: "the local file could not be read"}
			}
			err = run(gctx, VerbPart, u.Key, n, func(ctx context.Context, wrap bodyWrapper) (err error) {
				parts[i], err = up.PutPart(ctx, u, i+1, wrap(newPartBody(body, off, n)), crc)
				return err
			})
			parts[i].CRC32C, parts[i].Bytes = crc, n
			sent.Add(n)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil || sent.Load() != size {
		return nil, 0, &Error{Op: VerbPart, Key: u.Key, Class: ErrUnavailable, Cause: context.Cause(ctx)}
	}
	var crc uint32
	for _, p := range parts {
		crc = CombineCRC32C(crc, p.CRC32C, p.Bytes)
	}
	return parts, crc, nil
}

func newPartBody(body Body, off, n int64) Body { return NewReaderBody(body, off, n) }

// AbortStaleUploads removes the parts of uploads under prefix that were begun
// before the given time and never completed, and returns how many there were.
// Stores without uploads in parts have none. MinIO finds them by their whole key
// only, and removes them itself after a day.
func AbortStaleUploads(ctx context.Context, s Store, prefix string, before time.Time) (int, error) {
	up, ok := s.(PartUploader)
	if g, guarded := s.(*Guard); guarded {
		return g.abortStaleUploads(ctx, prefix, before)
	}
	if !ok {
		return 0, nil
	}
	return abortStaleUploads(ctx, up, runPlainly, prefix, before)
}

func abortStaleUploads(ctx context.Context, up PartUploader, run stepRunner, prefix string, before time.Time) (int, error) {
	var stale []Upload
	err := run(ctx, VerbList, prefix, 0, func(ctx context.Context, _ bodyWrapper) error {
		stale = stale[:0]
		for u, err := range up.ListUploads(ctx, prefix) {
			if err != nil {
				return err
			}
			if u.Begun.Before(before) {
				stale = append(stale, u)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i, u := range stale {
		err := run(ctx, VerbAbort, u.Key, 0, func(ctx context.Context, _ bodyWrapper) error { return up.AbortUpload(ctx, u) })
		if err != nil && !errors.Is(err, ErrNotFound) {
			return i, err
		}
	}
	return len(stale), nil
}
