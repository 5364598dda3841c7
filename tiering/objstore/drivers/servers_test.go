package drivers_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/minio"
	"strandline/tiering/objstore/objstoretest"
	"strandline/tiering/objstore/s3"
	"strandline/tiering/objstore/s3proto"
)

func config(m *objstoretest.Server, bucket string) s3proto.Config {
	return s3proto.Config{
		Bucket: bucket, Prefix: "pre/fix", Endpoint: m.Endpoint, PathStyle: true,
		AccessKeyID: m.AccessKey, SecretAccessKey: m.SecretKey, PartBytes: s3proto.MinPartBytes,
	}
}

// driver is one of the drivers of the protocol.
type driver struct {
	name string
	make func(ctx context.Context, cfg s3proto.Config) (bucket, error)
}

type bucket interface {
	objstore.Store
	objstore.PartUploader
}

var both = []driver{
	{"aws", func(ctx context.Context, cfg s3proto.Config) (bucket, error) { return s3.Open(ctx, cfg) }},
	{"minio", func(ctx context.Context, cfg s3proto.Config) (bucket, error) { return minio.Open(ctx, cfg) }},
}

func eachDriver(t *testing.T, test func(*testing.T, driver)) {
	for _, d := range both {
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

func (d driver) open(t testing.TB, cfg s3proto.Config) bucket {
	t.Helper()
	s, err := d.make(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestOnMinIO and TestOnVersity run what needs a real store against one server
// each. (versitygw checks conditions and checksums as MinIO does, and takes any
// storage class.)
func TestOnMinIO(t *testing.T) {
	m := objstoretest.StartMinIO(t)
	eachDriver(t, func(t *testing.T, d driver) {
		onServer(t, m, d, quirks{deniesRaces: true, checksStorageClass: true}, true)
	})
}

func TestOnVersity(t *testing.T) {
	m := objstoretest.StartVersity(t)
	eachDriver(t, func(t *testing.T, d driver) { onServer(t, m, d, quirks{}, os.Getenv("STRANDLINE_LONG") == "1") })
}

// quirks are what tells one server from another.
type quirks struct {
	deniesRaces, checksStorageClass bool
}

// onServer runs everything, or what differs between servers.
func onServer(t *testing.T, m *objstoretest.Server, d driver, q quirks, everything bool) {
	sums := []s3proto.Checksum{s3proto.ChecksumAuto, s3proto.ChecksumMD5}
	if everything {
		sums = append(sums, s3proto.ChecksumCRC32C, s3proto.ChecksumSHA256, s3proto.ChecksumNone)
		t.Run("UploadMemory", func(t *testing.T) { uploadMemory(t, m, d) })
	}
	t.Run("Suite", func(t *testing.T) { suite(t, m, d, q, sums) })
	t.Run("BodyIsReadOnce", func(t *testing.T) { bodyIsReadOnce(t, m, d) })
	t.Run("FaultsOnTheWay", func(t *testing.T) { faultsOnTheWay(t, m, d) })
	t.Run("InterruptedUploads", func(t *testing.T) { interruptedUploads(t, m, d) })
	t.Run("WrongSettings", func(t *testing.T) { wrongSettings(t, m, d, q) })
}

func suite(t *testing.T, m *objstoretest.Server, d driver, q quirks, sums []s3proto.Checksum) {
	for _, sum := range sums {
		t.Run(string(sum), func(t *testing.T) {
			o := objstoretest.Options{
				Large: s3proto.MinPartBytes, DeniesRaces: q.deniesRaces, Many: 170, Brief: sum != s3proto.ChecksumAuto,
				SkipChecksums: sum != s3proto.ChecksumAuto && sum != s3proto.ChecksumCRC32C,
			}
			objstoretest.Run(t, o, func(t *testing.T) objstore.Store {
				cfg := config(m, m.NewBucket(t))
				cfg.Checksum, cfg.PageKeys = sum, 50
				return d.open(t, cfg)
			})
		})
	}
	t.Run("guarded", func(t *testing.T) {
		objstoretest.Run(t, objstoretest.Options{Large: s3proto.MinPartBytes, Brief: true}, func(t *testing.T) objstore.Store {
			return objstore.NewGuard(d.open(t, config(m, m.NewBucket(t))), objstore.GuardConfig{BackoffMin: time.Millisecond})
		})
	})
}
