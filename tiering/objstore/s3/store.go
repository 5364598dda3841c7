package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"strandline/tiering/objstore"
)

// Store is an objstore.Store and objstore.PartUploader in an S3 bucket.
type Store struct {
	cfg      Config
	client   *s3.Client
	location objstore.Location
	idle     interface{ CloseIdleConnections() }
	closed   atomic.Bool
}

// Open makes a client for a bucket. Nothing is sent to the store yet, though the
// AWS default chain may look for credentials.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.normalise()
	if err != nil {
		return nil, &objstore.Error{Bucket: cfg.Bucket, Endpoint: cfg.Endpoint, Class: objstore.ErrInvalid, Cause: err}
	}
	client, transport, err := newClient(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, client: client, location: objstore.Location{Scheme: objstore.SchemeS3, Bucket: cfg.Bucket, Prefix: cfg.Prefix}}
	if u, err := url.Parse(cfg.Endpoint); err == nil {
		s.location.Endpoint = u.Host
	}
	s.idle, _ = transport.(interface{ CloseIdleConnections() })
	return s, nil
}

// check is what every call begins with.
func (s *Store) check(ctx context.Context, op objstore.Verb, keys ...string) error {
	if s.closed.Load() {
		return s.classed(op, "", objstore.ErrClosed, nil)
	}
	if ctx.Err() != nil {
		return s.classed(op, "", objstore.ErrUnavailable, context.Cause(ctx))
	}
	for _, key := range keys {
		if err := objstore.ValidateKey(key); err != nil {
			return s.classed(op, key, objstore.ErrInvalidKey, err)
		}
	}
	return nil
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.check(ctx, objstore.VerbGet, key); err != nil {
		return nil, err
	}
	in := &s3.GetObjectInput{Bucket: &s.cfg.Bucket, Key: &key}
	switch {
	case off < 0 || n == 0:
		return nil, s.classed(objstore.VerbGet, key, objstore.ErrRange, fmt.Errorf("%d bytes at %d", n, off))
	case n > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	case off > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", off))
	}
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		return nil, s.fail(ctx, objstore.VerbGet, key, err)
	}
	if in.Range != nil {
		// A store or proxy that ignores ranges would hand out other bytes.
		want := fmt.Sprintf("bytes %d-", off)
		if got := aws.ToString(out.ContentRange); !strings.HasPrefix(got, want) {
			_ = out.Body.Close()
			return nil, s.classed(objstore.VerbGet, key, objstore.ErrUnavailable, fmt.Errorf("asked for range %q, the answer has %q", *in.Range, got))
		}
	}
	length := int64(-1)
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	return &body{s: s, ctx: ctx, key: key, r: out.Body, left: length}, nil
}

// body is the body of a Get: it turns what breaks off into an error.
type body struct {
	s    *Store
	ctx  context.Context
	key  string
	r    io.ReadCloser
	left int64 // -1: not said
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left >= 0 {
		b.left -= int64(n)
	}
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && b.left <= 0 {
		return n, err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, b.s.fail(b.ctx, objstore.VerbGet, b.key, err)
}

func (b *body) Close() error { return b.r.Close() }

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.check(ctx, objstore.VerbHead, key); err != nil {
		return objstore.Info{}, err
	}
	in := &s3.HeadObjectInput{Bucket: &s.cfg.Bucket, Key: &key}
	if s.cfg.Checksum != ChecksumNone {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := s.client.HeadObject(ctx, in)
	if err != nil {
		return objstore.Info{}, s.fail(ctx, objstore.VerbHead, key, err)
	}
	info := objstore.Info{Key: key, Bytes: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified)}
	if out.ChecksumType != types.ChecksumTypeComposite {
		info.CRC32C, info.HasCRC = decodeCRC(aws.ToString(out.ChecksumCRC32C))
	}
	if !info.HasCRC {
		info.CRC32C, info.HasCRC = decodeCRC(out.Metadata[crcMetadata])
	}
	return info, nil
}

// List implements objstore.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &s.cfg.Bucket, Prefix: &prefix, MaxKeys: aws.Int32(int32(s.cfg.PageKeys)), EncodingType: types.EncodingTypeUrl}
		if after != "" {
			in.StartAfter = &after
		}
		for {
			if err := s.check(ctx, objstore.VerbList); err != nil {
				yield(objstore.Info{}, err)
				return
			}
			out, err := s.client.ListObjectsV2(ctx, in)
			if err != nil {
				yield(objstore.Info{}, s.fail(ctx, objstore.VerbList, prefix, err))
				return
			}
			for _, o := range out.Contents {
				key, err := decodeKey(aws.ToString(o.Key), out.EncodingType)
				if err != nil {
					yield(objstore.Info{}, s.classed(objstore.VerbList, prefix, objstore.ErrUnavailable, err))
					return
				}
				if key <= after || strings.HasSuffix(key, "/") {
					// Some stores ignore StartAfter; a key that ends in a
					// slash is a folder that a console has made.
					continue
				}
				if !yield(objstore.Info{Key: key, Bytes: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) || out.NextContinuationToken == nil {
				return
			}
			in.ContinuationToken = out.NextContinuationToken
		}
	}
}

// decodeKey undoes the encoding of a listing.
func decodeKey(key string, encoding types.EncodingType) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return key, nil
	}
	return url.QueryUnescape(key)
}

// Location implements objstore.Store.
func (s *Store) Location() objstore.Location { return s.location }

// Close implements objstore.Store.
func (s *Store) Close() error {
	if !s.closed.Swap(true) && s.idle != nil {
		s.idle.CloseIdleConnections()
	}
	return nil
}

var (
	_ objstore.Store        = (*Store)(nil)
	_ objstore.PartUploader = (*Store)(nil)
)
