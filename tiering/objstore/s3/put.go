package s3

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"strandline/tiering/objstore"
)

// crcMetadata is the user metadata that holds the CRC32C of the object where the
// store may not keep it: for uploads with another checksum.
const crcMetadata = "crc32c"

func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

func decodeCRC(s string) (uint32, bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// checksums are the headers that make the store verify a body.
type checksums struct{ crc32c, sha256, md5 *string }

// checksums computes them for a body whose CRC32C is known; only sha256 and md5
// read it.
func (s *Store) checksums(body objstore.Body, crc uint32) (c checksums, err error) {
	switch s.cfg.Checksum {
	case ChecksumAuto, ChecksumCRC32C:
		c.crc32c = aws.String(encodeCRC(crc))
	case ChecksumSHA256:
		c.sha256, err = sumBody(body, sha256.New())
	case ChecksumMD5:
		c.md5, err = sumBody(body, md5.New())
	}
	return c, err
}

func sumBody(body objstore.Body, h hash.Hash) (*string, error) {
	n, err := io.Copy(h, io.NewSectionReader(body, 0, body.Size()))
	if err == nil && n != body.Size() {
		err = io.ErrUnexpectedEOF
	}
	return aws.String(base64.StdEncoding.EncodeToString(h.Sum(nil))), err
}

// unsigned leaves the payload out of the signature: the checksum header, which
// is signed, covers it, and hashing it would read it once more.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

// reader is what the SDK sends: seekable, so that it asks for the length without
// reading, and nothing else, so that it is read in one pass. It remembers why
// reading failed.
type reader struct {
	io.ReadSeeker
	size, read int64
	err        error
}

func newReader(body objstore.Body) *reader {
	return &reader{ReadSeeker: io.NewSectionReader(body, 0, body.Size()), size: body.Size()}
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadSeeker.Read(p)
	r.read += int64(n)
	if errors.Is(err, io.EOF) && r.read < r.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.err = err
	}
	return n, err
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.check(ctx, objstore.VerbPut, key); err != nil {
		return objstore.Info{}, err
	}
	if body.Size() > s.cfg.PartBytes {
		return objstore.PutInParts(ctx, s, s, key, body, o)
	}
	if !o.HasCRC {
		crc, err := objstore.RangeCRC32C(body, 0, body.Size())
		if err != nil {
			return objstore.Info{}, s.classed(objstore.VerbPut, key, objstore.ErrInvalid, err)
		}
		o.CRC32C, o.HasCRC = crc, true
	}
	sums, err := s.checksums(body, o.CRC32C)
	if err != nil {
		return objstore.Info{}, s.classed(objstore.VerbPut, key, objstore.ErrInvalid, err)
	}
	r := newReader(body)
	in := &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: &key, Body: r, ContentLength: aws.Int64(body.Size()), ContentType: contentType(o),
		ChecksumCRC32C: sums.crc32c, ChecksumSHA256: sums.sha256, ContentMD5: sums.md5,
		StorageClass: types.StorageClass(s.cfg.StorageClass), Metadata: s.metadata(o),
	}
	if o.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := s.client.PutObject(ctx, in, unsigned)
	if err != nil {
		return objstore.Info{}, s.failPut(ctx, objstore.VerbPut, key, r, err)
	}
	if err := s.compareSum(objstore.VerbPut, key, out.ChecksumCRC32C, o.CRC32C); err != nil {
		return objstore.Info{}, err
	}
	return objstore.Info{Key: key, Bytes: body.Size(), CRC32C: o.CRC32C, HasCRC: true}, nil
}

// failPut tells a body that could not be read from a store that failed.
func (s *Store) failPut(ctx context.Context, op objstore.Verb, key string, r *reader, err error) error {
	if r.err != nil && ctx.Err() == nil {
		return s.classed(op, key, objstore.ErrInvalid, fmt.Errorf("reading the body: %w", r.err))
	}
	return s.fail(ctx, op, key, err)
}

// compareSum checks what the store says it has computed. With crc32c demanded, a
// store that says nothing has not verified anything.
func (s *Store) compareSum(op objstore.Verb, key string, got *string, want uint32) error {
	switch {
	case s.cfg.Checksum != ChecksumAuto && s.cfg.Checksum != ChecksumCRC32C:
		return nil
	case got == nil && s.cfg.Checksum == ChecksumCRC32C:
		return &objstore.Error{
			Op: op, Key: key, Endpoint: s.location.Endpoint, Bucket: s.cfg.Bucket, Class: objstore.ErrInvalid,
			Cause:  errors.New("the store did not confirm the CRC32C"),
			Remedy: "set remote.store.checksum to md5 or sha256 for this store",
		}
	case got == nil:
		return nil
	}
	if crc, ok := decodeCRC(*got); ok && crc != want {
		return s.classed(op, key, objstore.ErrChecksum, fmt.Errorf("sent CRC32C %08x, the store has %08x", want, crc))
	}
	return nil
}

func contentType(o objstore.PutOptions) *string {
	if o.ContentType == "" {
		return aws.String("application/octet-stream")
	}
	return aws.String(o.ContentType)
}

// metadata keeps the CRC32C where the store will not.
func (s *Store) metadata(o objstore.PutOptions) map[string]string {
	if !o.HasCRC || s.cfg.Checksum == ChecksumAuto || s.cfg.Checksum == ChecksumCRC32C {
		return nil
	}
	return map[string]string{crcMetadata: encodeCRC(o.CRC32C)}
}

// PartBytes implements objstore.PartUploader.
func (s *Store) PartBytes() int64 { return s.cfg.PartBytes }

// BeginUpload implements objstore.PartUploader.
func (s *Store) BeginUpload(ctx context.Context, key string, size int64, o objstore.PutOptions) (objstore.Upload, error) {
	if err := s.check(ctx, objstore.VerbBegin, key); err != nil {
		return objstore.Upload{}, err
	}
	if size > s.cfg.PartBytes*maxParts {
		return objstore.Upload{}, &objstore.Error{
			Op: objstore.VerbBegin, Key: key, Endpoint: s.location.Endpoint, Bucket: s.cfg.Bucket,
			Class: objstore.ErrInvalid, Cause: fmt.Errorf("%d bytes in parts of %d are over %d parts", size, s.cfg.PartBytes, maxParts),
			Remedy: "raise remote.store.part.size.bytes",
		}
	}
	in := &s3.CreateMultipartUploadInput{
		Bucket: &s.cfg.Bucket, Key: &key, ContentType: contentType(o),
		StorageClass: types.StorageClass(s.cfg.StorageClass), Metadata: s.metadata(o),
	}
	switch s.cfg.Checksum {
	case ChecksumAuto, ChecksumCRC32C:
		in.ChecksumAlgorithm, in.ChecksumType = types.ChecksumAlgorithmCrc32c, types.ChecksumTypeFullObject
	case ChecksumSHA256:
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
	if err := s.check(ctx, objstore.VerbPart, u.Key); err != nil {
		return objstore.Part{}, err
	}
	sums, err := s.checksums(body, crc)
	if err != nil {
		return objstore.Part{}, s.classed(objstore.VerbPart, u.Key, objstore.ErrInvalid, err)
	}
	r := newReader(body)
	out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &s.cfg.Bucket, Key: &u.Key, UploadId: &u.ID, PartNumber: aws.Int32(int32(number)),
		Body: r, ContentLength: aws.Int64(body.Size()),
		ChecksumCRC32C: sums.crc32c, ChecksumSHA256: sums.sha256, ContentMD5: sums.md5,
	}, unsigned)
	if err != nil {
		return objstore.Part{}, s.failPut(ctx, objstore.VerbPart, u.Key, r, err)
	}
	if err := s.compareSum(objstore.VerbPart, u.Key, out.ChecksumCRC32C, crc); err != nil {
		return objstore.Part{}, err
	}
	p := objstore.Part{Number: number, Tag: aws.ToString(out.ETag), Bytes: body.Size(), CRC32C: crc}
	if sums.sha256 != nil {
		p.Sum = *sums.sha256
	}
	return p, nil
}

// CompleteUpload implements objstore.PartUploader.
func (s *Store) CompleteUpload(ctx context.Context, u objstore.Upload, parts []objstore.Part, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.check(ctx, objstore.VerbComplete, u.Key); err != nil {
		return objstore.Info{}, err
	}
	crc := s.cfg.Checksum == ChecksumAuto || s.cfg.Checksum == ChecksumCRC32C
	done := make([]types.CompletedPart, len(parts))
	for i, p := range parts {
		done[i] = types.CompletedPart{PartNumber: aws.Int32(int32(p.Number)), ETag: aws.String(p.Tag)}
		if crc {
			done[i].ChecksumCRC32C = aws.String(encodeCRC(p.CRC32C))
		}
		if p.Sum != "" {
			done[i].ChecksumSHA256 = aws.String(p.Sum)
		}
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &s.cfg.Bucket, Key: &u.Key, UploadId: &u.ID,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	}
	if crc {
		in.ChecksumCRC32C, in.ChecksumType = aws.String(encodeCRC(o.CRC32C)), types.ChecksumTypeFullObject
	}
	if o.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := s.client.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return objstore.Info{}, s.fail(ctx, objstore.VerbComplete, u.Key, err)
	}
	if crc && out.ChecksumType == types.ChecksumTypeFullObject {
		if err := s.compareSum(objstore.VerbComplete, u.Key, out.ChecksumCRC32C, o.CRC32C); err != nil {
			return objstore.Info{}, err
		}
	}
	return objstore.Info{Key: u.Key, Bytes: u.Bytes, CRC32C: o.CRC32C, HasCRC: true}, nil
}

// AbortUpload implements objstore.PartUploader.
func (s *Store) AbortUpload(ctx context.Context, u objstore.Upload) error {
	if err := s.check(ctx, objstore.VerbAbort, u.Key); err != nil {
		return err
	}
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.cfg.Bucket, Key: &u.Key, UploadId: &u.ID})
	if err = s.fail(ctx, objstore.VerbAbort, u.Key, err); errors.Is(err, objstore.ErrNotFound) {
		return nil
	}
	return err
}

// ListUploads implements objstore.PartUploader.
func (s *Store) ListUploads(ctx context.Context, prefix string) iter.Seq2[objstore.Upload, error] {
	return func(yield func(objstore.Upload, error) bool) {
		in := &s3.ListMultipartUploadsInput{Bucket: &s.cfg.Bucket, Prefix: &prefix, EncodingType: types.EncodingTypeUrl}
		for {
			if err := s.check(ctx, objstore.VerbList); err != nil {
				yield(objstore.Upload{}, err)
				return
			}
			out, err := s.client.ListMultipartUploads(ctx, in)
			if err != nil {
				yield(objstore.Upload{}, s.fail(ctx, objstore.VerbList, prefix, err))
				return
			}
			for _, u := range out.Uploads {
				key, err := decodeKey(aws.ToString(u.Key), out.EncodingType)
				if err != nil {
					yield(objstore.Upload{}, s.classed(objstore.VerbList, prefix, objstore.ErrUnavailable, err))
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
