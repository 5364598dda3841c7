package drivers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/file"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/objstore/minio"
	"strandline/tiering/objstore/s3"
	"strandline/tiering/objstore/s3proto"
)

// Config names a store. The comments give the broker key of each field.
type Config struct {
	URL      string // remote.store.url
	Driver   string // remote.store.driver; empty: aws
	Endpoint string // remote.store.endpoint; empty: AWS
	Region   string // remote.store.region; empty: the AWS default chain's, us-east-1 at an endpoint
	// PathStyle (remote.store.path.style) puts the bucket into the path. It is
	// implied where Endpoint is an IP address or localhost.
	PathStyle       bool
	AccessKeyID     string        // remote.store.access.key.id; empty: the AWS default chain
	SecretAccessKey string        // remote.store.secret.access.key
	Checksum        string        // remote.store.checksum; empty: auto
	StorageClass    string        // remote.store.storage.class
	PartBytes       int64         // remote.store.part.size.bytes; 0: the driver's default
	RequestTimeout  time.Duration // remote.store.request.timeout.ms; for OpenGuarded
	// FS is the file system of a file store; nil: disk.OS().
	FS     disk.FS
	Logger *slog.Logger
}

// Open opens the bare driver. Nothing is sent to a remote store yet; see
// objstore.Probe.
func Open(ctx context.Context, cfg Config) (objstore.Store, error) {
	loc, err := objstore.ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	switch loc.Scheme {
	case objstore.SchemeMem:
		return mem.New(), nil
	case objstore.SchemeFile:
		fs := cfg.FS
		if fs == nil {
			fs = disk.OS()
		}
		return file.Open(file.Config{FS: fs, Dir: loc.Bucket}), nil
	}
	bucket := s3proto.Config{
		Bucket: loc.Bucket, Prefix: loc.Prefix, Endpoint: cfg.Endpoint, Region: cfg.Region, PathStyle: cfg.PathStyle,
		AccessKeyID: cfg.AccessKeyID, SecretAccessKey: cfg.SecretAccessKey,
		Checksum: s3proto.Checksum(cfg.Checksum), StorageClass: cfg.StorageClass, PartBytes: cfg.PartBytes,
	}
	switch cfg.Driver {
	case "", "aws":
		return opened(s3.Open(ctx, bucket))
	case "minio":
		return opened(minio.Open(ctx, bucket))
	}
	return nil, &objstore.Error{Bucket: loc.Bucket, Class: objstore.ErrInvalid, Cause: fmt.Errorf("remote.store.driver=%q: want aws or minio", cfg.Driver)}
}

// opened keeps a nil driver from becoming a store that is not nil.
func opened[S objstore.Store](s S, err error) (objstore.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// OpenGuarded opens the store behind a Guard, which is how everything but tests
// uses it. cfg.RequestTimeout, where set, replaces the guard's.
func OpenGuarded(ctx context.Context, cfg Config, guard objstore.GuardConfig) (*objstore.Guard, error) {
	s, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.RequestTimeout > 0 {
		guard.RequestTimeout = cfg.RequestTimeout
	}
	if guard.Logger == nil {
		guard.Logger = cfg.Logger
	}
	return objstore.NewGuard(s, guard), nil
}
