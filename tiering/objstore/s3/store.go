package s3

import (
	"context"
	"io"
	"iter"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/s3proto"
)

// Store is an objstore.Store and objstore.PartUploader in an S3 bucket.
type Store struct {
	*s3proto.Session
	client *s3.Client
}

// Open makes a client for a bucket. Nothing is sent to the store yet, though the
// AWS default chain may look for credentials.
func Open(ctx context.Context, cfg s3proto.Config) (*Store, error) {
	session, err := s3proto.NewSession(cfg)
	if err != nil {
		return nil, err
	}
	client, transport, err := newClient(ctx, session.Config)
	if err != nil {
		return nil, err
	}
	session.OnClose(transport)
	return &Store{Session: session, client: client}, nil
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.Check(ctx, objstore.VerbGet, key); err != nil {
		return nil, err
	}
	span, err := s.Range(key, off, n)
	if err != nil {
		return nil, err
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.Config.Bucket, Key: &key, Range: maybe(span)})
	if err != nil {
		return nil, s.fail(ctx, objstore.VerbGet, key, err)
	}
	if err := s.CheckRange(key, span, off, aws.ToString(out.ContentRange)); err != nil {
		_ = out.Body.Close()
		return nil, err
	}
	left := int64(-1)
	if out.ContentLength != nil {
		left = *out.ContentLength
	}
	return &s3proto.Response{Body: out.Body, Left: left, Fail: func(err error) error { return s.fail(ctx, objstore.VerbGet, key, err) }}, nil
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.Check(ctx, objstore.VerbHead, key); err != nil {
		return objstore.Info{}, err
	}
	in := &s3.HeadObjectInput{Bucket: &s.Config.Bucket, Key: &key}
	if s.Config.Checksum != s3proto.ChecksumNone {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := s.client.HeadObject(ctx, in)
	if err != nil {
		return objstore.Info{}, s.fail(ctx, objstore.VerbHead, key, err)
	}
	info := objstore.Info{Key: key, Bytes: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified)}
	info.CRC32C, info.HasCRC = s3proto.KnownCRC(aws.ToString(out.ChecksumCRC32C), out.ChecksumType == types.ChecksumTypeComposite, out.Metadata[s3proto.CRCMetadata])
	return info, nil
}

// List implements objstore.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &s.Config.Bucket, Prefix: &prefix, MaxKeys: aws.Int32(int32(s.Config.PageKeys)), EncodingType: types.EncodingTypeUrl}
		if after != "" {
			in.StartAfter = &after
		}
		for {
			if err := s.Check(ctx, objstore.VerbList); err != nil {
				yield(objstore.Info{}, err)
				return
			}
			out, err := s.client.ListObjectsV2(ctx, in)
			if err != nil {
				yield(objstore.Info{}, s.fail(ctx, objstore.VerbList, prefix, err))
				return
			}
			for _, o := range out.Contents {
				key, err := s3proto.DecodeKey(aws.ToString(o.Key), out.EncodingType == types.EncodingTypeUrl)
				if err != nil {
					yield(objstore.Info{}, s.Classed(objstore.VerbList, prefix, objstore.ErrUnavailable, err))
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

var (
	_ objstore.Store        = (*Store)(nil)
	_ objstore.PartUploader = (*Store)(nil)
)
