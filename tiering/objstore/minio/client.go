package minio

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/s3proto"
)

// awsEndpoint is where requests go that name no endpoint; the client finds the
// bucket's region itself.
const awsEndpoint = "https://s3.amazonaws.com"

// newClient makes minio-go's client with everything off that we do ourselves.
func newClient(c s3proto.Config) (*miniogo.Core, http.RoundTripper, error) {
	endpoint := c.Endpoint
	if endpoint == "" {
		endpoint = awsEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, nil, err
	}
	transport := c.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		s3proto.Tune(t)
		transport = t
	}
	lookup := miniogo.BucketLookupDNS
	if c.PathStyle {
		lookup = miniogo.BucketLookupPath
	}
	client, err := miniogo.NewCore(u.Host, &miniogo.Options{
		Creds: identity(c), Secure: u.Scheme == "https", Transport: transport,
		Region: c.Region, BucketLookup: lookup, MaxRetries: 1,
	})
	return client, transport, err
}

func identity(c s3proto.Config) *credentials.Credentials {
	if c.AccessKeyID != "" {
		return credentials.NewStaticV4(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})
}

// answer takes from an error of minio-go what the store has said.
func answer(err error) s3proto.Answer {
	var e miniogo.ErrorResponse
	if !errors.As(err, &e) {
		return s3proto.Answer{}
	}
	return s3proto.Answer{Status: e.StatusCode, Code: e.Code, Message: e.Message, Region: e.Region}
}

// described gives an error of minio-go the code that its text leaves out.
func described(err error) error {
	if a := answer(err); a.Code != "" {
		return fmt.Errorf("%d %s: %w", a.Status, a.Code, err)
	}
	return err
}

// fail turns an error of minio-go into ours; nil stays nil.
func (s *Store) fail(ctx context.Context, op objstore.Verb, key string, err error) error {
	if err == nil {
		return nil
	}
	return s.Fail(ctx, op, key, described(err), answer(err))
}
