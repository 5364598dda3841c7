package s3

import (
	"context"
	"iter"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/s3proto"
)

// unsigned leaves the payload out of the signature: the checksum header, which
// is signed, covers it, and hashing it would read it once more.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
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
	r := s3proto.NewReader(body)
	in := &s3.PutObjectInput{
		Bucket: &s.Config.Bucket, Key: &key, Body: r, ContentLength: aws.Int64(body.Size()), ContentType: aws.String(s3proto.ContentType(o)),
		ChecksumCRC32C: maybe(sums.CRC32C), ChecksumSHA256: maybe(sums.SHA256), ContentMD5: maybe(sums.MD5),
		StorageClass: types.StorageClass(s.Config.StorageClass), Metadata: s.Metadata(o),
	}
	if o.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := s.client.PutObject(ctx, in, unsigned)
	if err != nil {
		return objstore.Info{}, s.FailPut(ctx, objstore.VerbPut, key, r, err, answer(err))
	}
	if err := s.CompareSum(objstore.VerbPut, key, aws.ToString(out.ChecksumCRC32C), o.CRC32C); err != nil {
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
	in := &s3.CreateMultipartUploadInput{
		Bucket: &s.Config.Bucket, Key: &key, ContentType: aws.String(s3proto.ContentType(o)),
		StorageClass: types.StorageClass(s.Config.StorageClass), Metadata: s.Metadata(o),
	}
	switch {
	case s.SumsCRC():
		in.ChecksumAlgorithm, in.ChecksumType = types.ChecksumAlgorithmCrc32c, types.ChecksumTypeFullObject
	case s.Config.Checksum == s3proto.ChecksumSHA256:
		in.ChecksumAlgorithm = types.ChecksumAlgorithmSha256
	}
	out, err := s.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return objstore.Upload{}, s.fail(ctx, objstore.VerbBegin, key, err)
	}
	return objstore.Upload{Key: key, ID: aws.ToString(out.UploadId), Bytes: size}, nil
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
	r := s3proto.NewReader(body)
	out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &s.Config.Bucket, Key: &u.Key, UploadId: &u.ID, PartNumber: aws.Int32(int32(number)),
		Body: r, ContentLength: aws.Int64(body.Size()),
		ChecksumCRC32C: maybe(sums.CRC32C), ChecksumSHA256: maybe(sums.SHA256), ContentMD5: maybe(sums.MD5),
	}, unsigned)
	if err != nil {
		return objstore.Part{}, s.FailPut(ctx, objstore.VerbPart, u.Key, r, err, answer(err))
	}
	if err := s.CompareSum(objstore.VerbPart, u.Key, aws.ToString(out.ChecksumCRC32C), crc); err != nil {
		return objstore.Part{}, err
	}
	return objstore.Part{Number: number, Tag: aws.ToString(out.ETag), Bytes: body.Size(), CRC32C: crc, Sum: sums.SHA256}, nil
}

// CompleteUpload implements objstore.PartUploader.
func (s *Store) CompleteUpload(ctx context.Context, u objstore.Upload, parts []objstore.Part, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.Check(ctx, objstore.VerbComplete, u.Key); err != nil {
		return objstore.Info{}, err
	}
	done := make([]types.CompletedPart, len(parts))
	for i, p := range parts {
		done[i] = types.CompletedPart{PartNumber: aws.Int32(int32(p.Number)), ETag: aws.String(p.Tag), ChecksumSHA256: maybe(p.Sum)}
		if s.SumsCRC() {
			done[i].ChecksumCRC32C = aws.String(s3proto.EncodeCRC(p.CRC32C))
		}
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &s.Config.Bucket, Key: &u.Key, UploadId: &u.ID,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	}
	if s.SumsCRC() {
		in.ChecksumCRC32C, in.ChecksumType = aws.String(s3proto.EncodeCRC(o.CRC32C)), types.ChecksumTypeFullObject
	}
	if o.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := s.client.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return objstore.Info{}, s.fail(ctx, objstore.VerbComplete, u.Key, err)
	}
	if out.ChecksumType == types.ChecksumTypeFullObject {
		if err := s.CompareSum(objstore.VerbComplete, u.Key, aws.ToString(out.ChecksumCRC32C), o.CRC32C); err != nil {
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
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.Config.Bucket, Key: &u.Key, UploadId: &u.ID})
	return s3proto.Gone(s.fail(ctx, objstore.VerbAbort, u.Key, err))
}

// ListUploads implements objstore.PartUploader.
func (s *Store) ListUploads(ctx context.Context, prefix string) iter.Seq2[objstore.Upload, error] {
	return func(yield func(objstore.Upload, error) bool) {
		in := &s3.ListMultipartUploadsInput{Bucket: &s.Config.Bucket, Prefix: &prefix, EncodingType: types.EncodingTypeUrl}
		for {
			if err := s.Check(ctx, objstore.VerbList); err != nil {
				yield(objstore.Upload{}, err)
				return
			}
			out, err := s.client.ListMultipartUploads(ctx, in)
			if err != nil {
				yield(objstore.Upload{}, s.fail(ctx, objstore.VerbList, prefix, err))
				return
			}
			for _, u := range out.Uploads {
				key, err := s3proto.DecodeKey(aws.ToString(u.Key), out.EncodingType == types.EncodingTypeUrl)
				if err != nil {
					yield(objstore.Upload{}, s.Classed(objstore.VerbList, prefix, objstore.ErrUnavailable, err))
					return
				}
				if !yield(objstore.Upload{Key: key, ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) || out.NextKeyMarker == nil {
				return
			}
			in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
		}
	}
}
