package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"strandline/tiering/objstore"
)

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if err := s.check(ctx, objstore.VerbDelete, keys...); err != nil {
		return err
	}
	if len(keys) == 1 {
		return s.deleteOne(ctx, keys[0])
	}
	for batch := range slices.Chunk(keys, s.cfg.PageKeys) {
		if err := s.deleteBatch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) deleteOne(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.cfg.Bucket, Key: &key})
	if err = s.fail(ctx, objstore.VerbDelete, key, err); errors.Is(err, objstore.ErrNotFound) {
		return nil // S3 does not say so, but others do
	}
	return err
}

func (s *Store) deleteBatch(ctx context.Context, keys []string) error {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i] = types.ObjectIdentifier{Key: &keys[i]}
	}
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &s.cfg.Bucket,
		Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	}, s.deleteChecksum)
	var api smithy.APIError
	if errors.As(err, &api) && (api.ErrorCode() == "NotImplemented" || api.ErrorCode() == "MethodNotAllowed") {
		for _, key := range keys {
			if err := s.deleteOne(ctx, key); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return s.fail(ctx, objstore.VerbDelete, "", err)
	}
	for _, e := range out.Errors {
		if code := aws.ToString(e.Code); code != "NoSuchKey" {
			failed := s.fail(ctx, objstore.VerbDelete, aws.ToString(e.Key),
				&smithy.GenericAPIError{Code: code, Message: aws.ToString(e.Message)})
			return fmt.Errorf("%d of %d objects not deleted, the first: %w", len(out.Errors), len(keys), failed)
		}
	}
	return nil
}

// deleteChecksum makes the request carry a Content-MD5, which older stores
// demand, where newer checksums are not to be used.
func (s *Store) deleteChecksum(o *s3.Options) {
	if s.cfg.Checksum == ChecksumMD5 || s.cfg.Checksum == ChecksumNone {
		o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware)
	}
}
