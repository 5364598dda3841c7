package minio

import (
	"context"
	"io"
	"iter"
	"slices"
	"strings"

	miniogo "github.com/minio/minio-go/v7"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/s3proto"
)

// Store is an objstore.Store and objstore.PartUploader in an S3 bucket.
type Store struct {
	*s3proto.Session
	client *miniogo.Core
}

// Open makes a client for a bucket. Nothing is sent to the store yet.
func Open(_ context.Context, cfg s3proto.Config) (*Store, error) {
	session, err := s3proto.NewSession(cfg)
	if err != nil {
		return nil, err
	}
	client, transport, err := newClient(session.Config)
	if err != nil {
		return nil, &objstore.Error{Bucket: cfg.Bucket, Endpoint: cfg.Endpoint, Class: objstore.ErrInvalid, Cause: err}
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
	var o miniogo.GetObjectOptions
	if span != "" {
		o.Set("Range", span)
	}
	body, info, header, err := s.client.GetObject(ctx, s.Config.Bucket, key, o)
	if err != nil {
		return nil, s.fail(ctx, objstore.VerbGet, key, err)
	}
	if err := s.CheckRange(key, span, off, header.Get("Content-Range")); err != nil {
		_ = body.Close()
		return nil, err
	}
	return &s3proto.Response{Body: body, Left: info.Size, Fail: func(err error) error { return s.fail(ctx, objstore.VerbGet, key, err) }}, nil
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.Check(ctx, objstore.VerbHead, key); err != nil {
		return objstore.Info{}, err
	}
	out, err := s.client.StatObject(ctx, s.Config.Bucket, key, miniogo.StatObjectOptions{Checksum: s.Config.Checksum != s3proto.ChecksumNone})
	if err != nil {
		return objstore.Info{}, s.fail(ctx, objstore.VerbHead, key, err)
	}
	info := objstore.Info{Key: key, Bytes: out.Size, Modified: out.LastModified}
	info.CRC32C, info.HasCRC = s3proto.KnownCRC(out.ChecksumCRC32C, out.ChecksumMode == composite, out.Headers.Get("x-amz-meta-"+s3proto.CRCMetadata))
	return info, nil
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if err := s.Check(ctx, objstore.VerbDelete, keys...); err != nil {
		return err
	}
	if len(keys) == 1 {
		return s.deleteOne(ctx, keys[0])
	}
	for batch := range slices.Chunk(keys, s.Config.PageKeys) {
		if err := s.deleteBatch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) deleteOne(ctx context.Context, key string) error {
	err := s.client.RemoveObject(ctx, s.Config.Bucket, key, miniogo.RemoveObjectOptions{})
	return s3proto.Gone(s.fail(ctx, objstore.VerbDelete, key, err))
}

// deleteBatch is one request, with a Content-MD5 always. minio-go keeps silent
// about keys that the store refuses as "InvalidArgument"; ours are valid.
func (s *Store) deleteBatch(ctx context.Context, keys []string) error {
	objects := func(yield func(miniogo.ObjectInfo) bool) {
		for _, key := range keys {
			if !yield(miniogo.ObjectInfo{Key: key}) {
				return
			}
		}
	}
	results, err := s.client.RemoveObjectsWithIter(ctx, s.Config.Bucket, objects, miniogo.RemoveObjectsOptions{})
	if err != nil {
		return s.fail(ctx, objstore.VerbDelete, "", err)
	}
	for r := range results {
		if s3proto.DeletesSingly(answer(r.Err).Code) {
			for _, key := range keys {
				if err := s.deleteOne(ctx, key); err != nil {
					return err
				}
			}
			return nil
		}
		if err := s3proto.Gone(s.fail(ctx, objstore.VerbDelete, r.ObjectName, r.Err)); err != nil {
			return err
		}
	}
	return s.Check(ctx, objstore.VerbDelete)
}

// List implements objstore.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		o := miniogo.ListObjectsOptions{Prefix: prefix, StartAfter: after, Recursive: true, MaxKeys: s.Config.PageKeys, FetchOwner: new(bool)}
		if err := s.Check(ctx, objstore.VerbList); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		for out := range s.client.ListObjectsIter(ctx, s.Config.Bucket, o) {
			if err := s.fail(ctx, objstore.VerbList, prefix, out.Err); err != nil {
				yield(objstore.Info{}, err)
				return
			}
			if out.Key <= after || strings.HasSuffix(out.Key, "/") {
				continue // as in the other driver
			}
			if !yield(objstore.Info{Key: out.Key, Bytes: out.Size, Modified: out.LastModified}, nil) {
				return
			}
		}
		// The client ends in silence where the context does.
		if err := s.Check(ctx, objstore.VerbList); err != nil {
			yield(objstore.Info{}, err)
		}
	}
}

var (
	_ objstore.Store        = (*Store)(nil)
	_ objstore.PartUploader = (*Store)(nil)
)
