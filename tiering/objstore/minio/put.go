package minio

import (
	"context"
	"iter"
	"net/http"

	miniogo "github.com/minio/minio-go/v7"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/s3proto"
)

// What headers and answers call checksums.
const (
	headerCRC32C    = "x-amz-checksum-crc32c"
	headerSHA256    = "x-amz-checksum-sha256"
	headerAlgorithm = "x-amz-checksum-algorithm"
	headerType      = "x-amz-checksum-type"
	fullObject      = "FULL_OBJECT"
	composite       = "COMPOSITE"
)

// options are what all uploads have in common.
func (s *Store) options(o objstore.PutOptions) miniogo.PutObjectOptions {
	out := miniogo.PutObjectOptions{
		ContentType: s3proto.ContentType(o), StorageClass: s.Config.StorageClass,
		UserMetadata: map[string]string{}, DisableContentSha256: true,
	}
	for name, value := range s.Metadata(o) {
		out.UserMetadata[name] = value
	}
	return out
}

// sumHeaders are the checksum headers of a body; the MD5 has an option of its own.
func sumHeaders(sums s3proto.Sums) map[string]string {
	h := map[string]string{}
	if sums.CRC32C != "" {
		h[headerCRC32C] = sums.CRC32C
	}
	if sums.SHA256 != "" {
		h[headerSHA256] = sums.SHA256
	}
	return h
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.Check(ctx, objstore.VerbPut, key); err != nil {
		return objstore.Info{}, err
	}
	if body.Size() > s.PartBytes() {
		return objstore.PutInParts(ctx, s, s, key, body, o)
	}
	o, err := s.WithCRC(key, body, o)
	if err != nil {
		return objstore.Info{}, err
	}
	sums, err := s.Sums(objstore.VerbPut, key, body, o.CRC32C)
	if err != nil {
		return objstore.Info{}, err
	}
	opts := s.options(o)
	for name, value := range sumHeaders(sums) {
		opts.UserMetadata[name] = value
	}
	if o.IfAbsent {
		opts.SetMatchETagExcept("*")
	}
	r := s3proto.NewReader(body)
	out, err := s.client.PutObject(ctx, s.Config.Bucket, key, r, body.Size(), sums.MD5, "", opts)
	if err != nil {
		return objstore.Info{}, s.FailPut(ctx, objstore.VerbPut, key, r, described(err), answer(err))
	}
	if err := s.CompareSum(objstore.VerbPut, key, out.ChecksumCRC32C, o.CRC32C); err != nil {
		return objstore.Info{}, err
	}
	return objstore.Info{Key: key, Bytes: body.Size(), CRC32C: o.CRC32C, HasCRC: true}, nil
}

// BeginUpload implements objstore.PartUploader.
func (s *Store) BeginUpload(ctx context.Context, key string, size int64, o objstore.PutOptions) (objstore.Upload, error) {
	if err := s.Check(ctx, objstore.VerbBegin, key); err != nil {
		return objstore.Upload{}, err
	}
	if err := s.CheckParts(key, size); err != nil {
		return objstore.Upload{}, err
	}
	opts := s.options(o)
	switch {
	case s.SumsCRC():
		opts.UserMetadata[headerAlgorithm], opts.UserMetadata[headerType] = "CRC32C", fullObject
	case s.Config.Checksum == s3proto.ChecksumSHA256:
		opts.UserMetadata[headerAlgorithm] = "SHA256"
	}
	id, err := s.client.NewMultipartUpload(ctx, s.Config.Bucket, key, opts)
	if err != nil {
		return objstore.Upload{}, s.fail(ctx, objstore.VerbBegin, key, err)
	}
	return objstore.Upload{Key: key, ID: id, Bytes: size}, nil
}

// PutPart implements objstore.PartUploader.
func (s *Store) PutPart(ctx context.Context, u objstore.Upload, number int, body objstore.Body, crc uint32) (objstore.Part, error) {
	if err := s.Check(ctx, objstore.VerbPart, u.Key); err != nil {
		return objstore.Part{}, err
	}
	sums, err := s.Sums(objstore.VerbPart, u.Key, body, crc)
	if err != nil {
		return objstore.Part{}, err
	}
	header := http.Header{}
	for name, value := range sumHeaders(sums) {
		header.Set(name, value)
	}
	r := s3proto.NewReader(body)
	out, err := s.client.PutObjectPart(ctx, s.Config.Bucket, u.Key, u.ID, number, r, body.Size(),
		miniogo.PutObjectPartOptions{Md5Base64: sums.MD5, CustomHeader: header, DisableContentSha256: true})
	if err != nil {
		return objstore.Part{}, s.FailPut(ctx, objstore.VerbPart, u.Key, r, described(err), answer(err))
	}
	if err := s.CompareSum(objstore.VerbPart, u.Key, out.ChecksumCRC32C, crc); err != nil {
		return objstore.Part{}, err
	}
	return objstore.Part{Number: number, Tag: out.ETag, Bytes: body.Size(), CRC32C: crc, Sum: sums.SHA256}, nil
}

// CompleteUpload implements objstore.PartUploader.
func (s *Store) CompleteUpload(ctx context.Context, u objstore.Upload, parts []objstore.Part, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.Check(ctx, objstore.VerbComplete, u.Key); err != nil {
		return objstore.Info{}, err
	}
	done := make([]miniogo.CompletePart, len(parts))
	for i, p := range parts {
		done[i] = miniogo.CompletePart{PartNumber: p.Number, ETag: p.Tag, ChecksumSHA256: p.Sum}
		if s.SumsCRC() {
			done[i].ChecksumCRC32C = s3proto.EncodeCRC(p.CRC32C)
		}
	}
	opts := miniogo.PutObjectOptions{UserMetadata: map[string]string{}}
	if s.SumsCRC() {
		opts.UserMetadata[headerCRC32C], opts.UserMetadata[headerType] = s3proto.EncodeCRC(o.CRC32C), fullObject
	}
	if o.IfAbsent {
		opts.SetMatchETagExcept("*")
	}
	out, err := s.client.CompleteMultipartUpload(ctx, s.Config.Bucket, u.Key, u.ID, done, opts)
	if err != nil {
		return objstore.Info{}, s.fail(ctx, objstore.VerbComplete, u.Key, err)
	}
	if out.ChecksumMode == fullObject {
		if err := s.CompareSum(objstore.VerbComplete, u.Key, out.ChecksumCRC32C, o.CRC32C); err != nil {
			return objstore.Info{}, err
		}
	}
	return objstore.Info{Key: u.Key, Bytes: u.Bytes, CRC32C: o.CRC32C, HasCRC: true}, nil
}

// AbortUpload implements objstore.PartUploader.
func (s *Store) AbortUpload(ctx context.Context, u objstore.Upload) error {
	if err := s.Check(ctx, objstore.VerbAbort, u.Key); err != nil {
		return err
	}
	return s3proto.Gone(s.fail(ctx, objstore.VerbAbort, u.Key, s.client.AbortMultipartUpload(ctx, s.Config.Bucket, u.Key, u.ID)))
}

// ListUploads implements objstore.PartUploader.
func (s *Store) ListUploads(ctx context.Context, prefix string) iter.Seq2[objstore.Upload, error] {
	return func(yield func(objstore.Upload, error) bool) {
		var keyMarker, idMarker string
		for {
			if err := s.Check(ctx, objstore.VerbList); err != nil {
				yield(objstore.Upload{}, err)
				return
			}
			out, err := s.client.ListMultipartUploads(ctx, s.Config.Bucket, prefix, keyMarker, idMarker, "", 0)
			if err != nil {
				yield(objstore.Upload{}, s.fail(ctx, objstore.VerbList, prefix, err))
				return
			}
			for _, u := range out.Uploads {
				if !yield(objstore.Upload{Key: u.Key, ID: u.UploadID, Begun: u.Initiated}, nil) {
					return
				}
			}
			if !out.IsTruncated || out.NextKeyMarker == "" {
				return
			}
			keyMarker, idMarker = out.NextKeyMarker, out.NextUploadIDMarker
		}
	}
}
