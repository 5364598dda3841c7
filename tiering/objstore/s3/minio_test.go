package s3_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/objstoretest"
	"strandline/tiering/objstore/s3"
)

func config(m *objstoretest.MinIO, bucket string) s3.Config {
	return s3.Config{
		Bucket: bucket, Prefix: "pre/fix", Endpoint: m.Endpoint, PathStyle: true,
		AccessKeyID: m.AccessKey, SecretAccessKey: m.SecretKey, PartBytes: s3.MinPartBytes,
	}
}

func open(t testing.TB, cfg s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestOnMinIO runs everything that needs a real store against one server.
func TestOnMinIO(t *testing.T) {
	m := objstoretest.StartMinIO(t)
	for name, test := range map[string]func(*testing.T, *objstoretest.MinIO){
		"Suite":              suite,
		"BodyIsReadOnce":     bodyIsReadOnce,
		"FaultsOnTheWay":     faultsOnTheWay,
		"InterruptedUploads": interruptedUploads,
		"WrongSettings":      wrongSettings,
		"UploadMemory":       uploadMemory,
	} {
		t.Run(name, func(t *testing.T) { test(t, m) })
	}
}

func suite(t *testing.T, m *objstoretest.MinIO) {
	for _, sum := range []s3.Checksum{s3.ChecksumAuto, s3.ChecksumCRC32C, s3.ChecksumSHA256, s3.ChecksumMD5, s3.ChecksumNone} {
		t.Run(string(sum), func(t *testing.T) {
			o := objstoretest.Options{
				Large: s3.MinPartBytes, DeniesRaces: true, Many: 170, Brief: sum != s3.ChecksumAuto,
				SkipChecksums: sum != s3.ChecksumAuto && sum != s3.ChecksumCRC32C,
			}
			objstoretest.Run(t, o, func(t *testing.T) objstore.Store {
				cfg := config(m, m.NewBucket(t))
				cfg.Checksum, cfg.PageKeys = sum, 50
				return open(t, cfg)
			})
		})
	}
	t.Run("guarded", func(t *testing.T) {
		objstoretest.Run(t, objstoretest.Options{Large: s3.MinPartBytes, Brief: true}, func(t *testing.T) objstore.Store {
			return objstore.NewGuard(open(t, config(m, m.NewBucket(t))), objstore.GuardConfig{BackoffMin: time.Millisecond})
		})
	})
}
