package objstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]objstore.Location{
		"mem:":                      {Scheme: "mem"},
		"mem://":                    {Scheme: "mem"},
		"file:///var/tier":          {Scheme: "file", Bucket: "/var/tier"},
		"file:/var/tier/":           {Scheme: "file", Bucket: "/var/tier"},
		"file://localhost/var/tier": {Scheme: "file", Bucket: "/var/tier"},
		"file:///var/my%20tier":     {Scheme: "file", Bucket: "/var/my tier"},
		"s3://bucket":               {Scheme: "s3", Bucket: "bucket"},
		"s3://bucket/":              {Scheme: "s3", Bucket: "bucket"},
		"s3://my.old_Bucket/a/b/":   {Scheme: "s3", Bucket: "my.old_Bucket", Prefix: "a/b"},
	} {
		got, err := objstore.ParseURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	for raw, want := range map[string]string{
		"":                      "file:///DIR",
		"/var/tier":             "file:///DIR",
		"./tier":                "absolute",
		"bucket":                "s3://BUCKET/PREFIX",
		"file://tier":           "three slashes",
		"file://":               "three slashes",
		"file:///":              "root directory",
		"file:///a?x":           "no query",
		"file:///a%zz":          "%25",
		"s3:bucket":             "bucket is missing",
		"s3://":                 "bucket is missing",
		"s3:///bucket":          "bucket is missing",
		"s3://b/x":              "3 to 63 characters",
		"s3://bucket?region=x":  "remote.store.*",
		"s3://key:pw@bucket/x":  "remote.store.access.key.id",
		"s3://host:9000/bucket": "remote.store.endpoint",
		"s3://127.0.0.1/bucket": "remote.store.endpoint",
		"s3://buck et/x":        "character",
		"s3://bucket/a//b":      "empty component",
		"https://host/bucket":   "remote.store.endpoint",
		"http://host:9000":      "remote.store.endpoint",
		"s3a://bucket":          "the scheme is s3",
		"minio://bucket":        "the scheme is s3",
		"gs://bucket":           "not known",
		"mem:x":                 "mem: alone",
	} {
		_, err := objstore.ParseURL(raw)
		require.ErrorIs(t, err, objstore.ErrInvalidURL, raw)
		require.ErrorContains(t, err, want, raw)
		require.NotContains(t, err.Error(), "key:pw", "no secret in an error")
	}
}

func TestLocation(t *testing.T) {
	l := objstore.Location{Scheme: "s3", Endpoint: "host:9000", Bucket: "b", Prefix: "p/q"}
	require.Equal(t, "s3://b/p/q at host:9000", l.String())
	require.Equal(t, "p/q/x/y.seg", l.Key("x", "y.seg"))
	l.Prefix = ""
	require.Equal(t, "x/y.seg", l.Key("x", "y.seg"))
	require.Equal(t, "mem:", objstore.Location{Scheme: "mem"}.String())
	require.Equal(t, "file:///d", objstore.Location{Scheme: "file", Bucket: "/d"}.String())
}
