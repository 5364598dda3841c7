package drivers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
)

// Config names a store. The comments give the broker key of each field.
type Config struct {
	URL             string        // remote.store.url
	Driver          string        // remote.store.driver; empty: aws
	Endpoint        string        // remote.store.endpoint; empty: AWS
	Region          string        // remote.store.region
	PathStyle       bool          // remote.store.path.style
	AccessKeyID     string        // remote.store.access.key.id; empty: the AWS default chain
	SecretAccessKey string        // remote.store.secret.access.key
	Checksum        string        // remote.store.checksum; empty: auto
	StorageClass    string        // remote.store.storage.class
	PartBytes       int64         // remote.store.part.size.bytes; 0: the driver's default
	RequestTimeout  time.Duration // remote.store.request.timeout.ms; for Guarded
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
	}
	return nil, fmt.Errorf("scheme %q", loc.Scheme)
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
