package s3

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/s3proto"
)

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
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.Config.Bucket, Key: &key})
	return s3proto.Gone(s.fail(ctx, objstore.VerbDelete, key, err))
}

func (s *Store) deleteBatch(ctx context.Context, keys []string) error {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i] = types.ObjectIdentifier{Key: &keys[i]}
	}
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &s.Config.Bucket,
		Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	}, s.deleteChecksum)
	if s3proto.DeletesSingly(answer(err).Code) {
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
	if s.Config.Checksum == s3proto.ChecksumMD5 || s.Config.Checksum == s3proto.ChecksumNone {
		o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware)
	}
}
