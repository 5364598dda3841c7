package s3

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/s3proto"
)

// newClient makes the SDK's client with everything off that we do ourselves.
func newClient(ctx context.Context, c s3proto.Config) (*s3.Client, http.RoundTripper, error) {
	// The SDK adds the CA bundle of its configuration to such a client only.
	buildable := awshttp.NewBuildableClient().WithTransportOptions(s3proto.Tune)
	opts := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(buildable),
		awsconfig.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		awsconfig.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		awsconfig.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
		awsconfig.WithLogger(logging.Nop{}),
	}
	if c.Region != "" {
		opts = append(opts, awsconfig.WithRegion(c.Region))
	}
	if c.AccessKeyID != "" {
		opts = append(opts, awsconfig.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, nil, &objstore.Error{
			Bucket: c.Bucket, Endpoint: c.Endpoint, Class: objstore.ErrAccess, Cause: err,
			Remedy: "check the AWS configuration in the environment and in ~/.aws",
		}
	}
	if cfg.Region == "" {
		return nil, nil, &objstore.Error{
			Bucket: c.Bucket, Endpoint: c.Endpoint, Class: objstore.ErrInvalid,
			Remedy: "set remote.store.region to the region of the bucket, or remote.store.endpoint for a store other than AWS",
		}
	}
	transport := c.Transport
	if transport == nil {
		if b, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
			buildable = b
		}
		transport = buildable.GetTransport()
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: transport, CheckRedirect: noRedirect}
		o.UsePathStyle = c.PathStyle
		o.DisableS3ExpressSessionAuth = aws.Bool(true)
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	return client, transport, nil
}

// noRedirect hands a redirect back as the answer: it means the wrong region, and
// a signed request cannot follow it.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// answer takes from an error of the SDK what the store has said.
func answer(err error) (a s3proto.Answer) {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		a.Status = response.HTTPStatusCode()
		if response.Response != nil {
			a.Region = response.Response.Header.Get("X-Amz-Bucket-Region")
		}
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		a.Code, a.Message = api.ErrorCode(), api.ErrorMessage()
	}
	return a
}

// fail turns an error of the SDK into ours; nil stays nil.
func (s *Store) fail(ctx context.Context, op objstore.Verb, key string, err error) error {
	return s.Fail(ctx, op, key, err, answer(err))
}

// maybe is nil for an empty header.
func maybe(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
