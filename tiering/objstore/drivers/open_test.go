package drivers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/drivers"
)

func TestOpenByURL(t *testing.T) {
	dir := t.TempDir() + "/deep/tier"
	for _, c := range []struct {
		cfg  drivers.Config
		want objstore.Location
	}{
		{drivers.Config{URL: "mem:"}, objstore.Location{Scheme: "mem"}},
		{drivers.Config{URL: "file://" + dir}, objstore.Location{Scheme: "file", Bucket: dir}},
		{drivers.Config{URL: "file:///x/y", FS: disk.NewCrash(1)}, objstore.Location{Scheme: "file", Bucket: "/x/y"}},
		{
			drivers.Config{URL: "s3://my-bucket/a/b/", Endpoint: "http://127.0.0.1:9000", AccessKeyID: "a", SecretAccessKey: "b"},
			objstore.Location{Scheme: "s3", Endpoint: "127.0.0.1:9000", Bucket: "my-bucket", Prefix: "a/b"},
		},
		{drivers.Config{URL: "s3://my-bucket", Region: "eu-west-1"}, objstore.Location{Scheme: "s3", Bucket: "my-bucket"}},
		{
			drivers.Config{URL: "s3://my-bucket/a", Driver: "minio", Endpoint: "http://127.0.0.1:9000", AccessKeyID: "a", SecretAccessKey: "b"},
			objstore.Location{Scheme: "s3", Endpoint: "127.0.0.1:9000", Bucket: "my-bucket", Prefix: "a"},
		},
		{drivers.Config{URL: "s3://my-bucket", Driver: "minio"}, objstore.Location{Scheme: "s3", Bucket: "my-bucket"}},
	} {
		g, err := drivers.OpenGuarded(t.Context(), c.cfg, objstore.GuardConfig{})
		require.NoError(t, err, "%+v", c.cfg)
		require.Equal(t, c.want, g.Location())
		require.NoError(t, g.Close())
	}
}

func TestOpenRefusesWithASentence(t *testing.T) {
	s3 := func(change func(*drivers.Config)) drivers.Config {
		c := drivers.Config{URL: "s3://bucket", Region: "eu-west-1"}
		change(&c)
		return c
	}
	for _, c := range []struct {
		cfg  drivers.Config
		want string
	}{
		{drivers.Config{URL: "ftp://x"}, "file:///DIR"},
		{s3(func(c *drivers.Config) { c.Driver = "gcs" }), "remote.store.driver"},
		{s3(func(c *drivers.Config) { c.Checksum = "crc16" }), "remote.store.checksum"},
		{s3(func(c *drivers.Config) { c.PartBytes = 1000 }), "remote.store.part.size.bytes"},
		{s3(func(c *drivers.Config) { c.AccessKeyID = "only" }), "remote.store.secret.access.key"},
		{s3(func(c *drivers.Config) { c.Endpoint = "ftp://host" }), "remote.store.endpoint"},
		{s3(func(c *drivers.Config) { c.Endpoint = "http://host/bucket" }), "remote.store.url"},
	} {
		_, err := drivers.Open(t.Context(), c.cfg)
		require.ErrorContains(t, err, c.want, "%+v", c.cfg)
		require.False(t, objstore.IsRetriable(err))
	}
}
