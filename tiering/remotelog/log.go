package remotelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"strandline/broker/partition"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/metadata/watch"
	"strandline/tiering/objstore"
	"strandline/tiering/rangecache"
	"strandline/tiering/segmentobject"
)

var (
	// ErrMissingObject: the catalog names an object that the store does not
	// have.
	ErrMissingObject = errors.New("the object of a live remote segment is missing")
	// ErrOtherLocation: a segment lies in a store other than the configured one.
	ErrOtherLocation = errors.New("the remote segment lies in another location than the configured store")
)

// Defaults of Config.
const (
	DefaultChunkBytes     = 1 << 20
	DefaultIndexBytes     = 16 << 20
	DefaultReadAheadBytes = 8 << 20
	DefaultAheadSegments  = 4
	DefaultBadFor         = 30 * time.Second
	DefaultIndexTimeout   = time.Minute
)

// Config is what a Log is made of. Store, Catalog, Submitter and Cache are
// required.
type Config struct {
	Store     objstore.Store
	Catalog   watch.Catalog
	Submitter watch.Submitter
	Cache     *rangecache.Cache
	// CatchUp returns once this node knows what the controller knew when it was
	// called; nil: the catalog is always up to date.
	CatchUp func(ctx context.Context) error
	// Location is the id of the store's location, false while it is not known
	// because the store could not be asked yet. Nil: not compared.
	Location func() (id string, known bool)
	// ChunkBytes is how much is read and cached at a time: a multiple of
	// segmentobject.ChunkBytes (rounded up).
	ChunkBytes int64
	// IndexBytes bounds the parsed indexes kept in memory; the one in use is
	// kept whatever its size.
	IndexBytes int64
	// ReadAheadBytes bounds how far ahead of one sequential reader is read. At
	// most a quarter of the cache.
	ReadAheadBytes int64
	// AheadSegments bounds the segments that are being opened ahead of readers.
	AheadSegments int
	// BadFor is how long an object that was found bad is not read again.
	BadFor time.Duration
	Logger *slog.Logger
	// TopicName is the name of a topic, for log lines; false where it is not known.
	// Nil: no topic has one.
	TopicName func(id cluster.TopicID) (name string, ok bool)
}

// nameOf is what a log line calls a topic: its name, or its id.
func (l *Log) nameOf(id cluster.TopicID) string {
	if l.cfg.TopicName != nil {
		if name, ok := l.cfg.TopicName(id); ok {
			return name
		}
	}
	return id.String()
}

func (c *Config) setDefaults() {
	if c.ChunkBytes <= 0 {
		c.ChunkBytes = DefaultChunkBytes
	}
	const unit = segmentobject.ChunkBytes
	c.ChunkBytes = (c.ChunkBytes + unit - 1) / unit * unit
	if c.IndexBytes <= 0 {
		c.IndexBytes = DefaultIndexBytes
	}
	if c.ReadAheadBytes <= 0 {
		c.ReadAheadBytes = DefaultReadAheadBytes
	}
	if c.Cache != nil {
		c.ReadAheadBytes = min(c.ReadAheadBytes, c.Cache.LimitBytes()/4)
	}
	if c.AheadSegments <= 0 {
		c.AheadSegments = DefaultAheadSegments
	}
	if c.BadFor <= 0 {
		c.BadFor = DefaultBadFor
	}
	if c.CatchUp == nil {
		c.CatchUp = func(context.Context) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Log reads the remote part of every partition. All methods may be called
// concurrently.
type Log struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	jobs   sync.WaitGroup
	slots  chan struct{} // segments being opened ahead

	indexes indexCache
	readers readers
	bad     badObjects
	counts  counts

	mu     sync.Mutex // guards closed against jobs
	closed bool
}

var (
	_ partition.RemoteLog      = (*Log)(nil)
	_ partition.LogStartKeeper = (*Log)(nil)
)

// New returns a Log.
func New(cfg Config) *Log {
	cfg.setDefaults()
	l := &Log{cfg: cfg, slots: make(chan struct{}, cfg.AheadSegments)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.indexes.limit = cfg.IndexBytes
	return l
}

// Close ends reading ahead. Reads that are under way end by their contexts.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.jobs.Wait()
	return nil
}

// RemoteEndOffset implements partition.RemoteLog.
func (l *Log) RemoteEndOffset(tp cluster.TopicPartition) (cluster.Offset, bool) {
	sum, ok := l.cfg.Catalog.Summary(tp)
	return sum.RemoteEnd, ok
}

// LogStartOffset implements partition.RemoteLog.
func (l *Log) LogStartOffset(tp cluster.TopicPartition) (cluster.Offset, bool) {
	sum, ok := l.cfg.Catalog.Summary(tp)
	return sum.LogStart, ok
}

// LiveBytes implements partition.RemoteLog: the record batches alone, which is
// what size retention counts.
func (l *Log) LiveBytes(tp cluster.TopicPartition) int64 {
	sum, _ := l.cfg.Catalog.Summary(tp)
	return sum.LiveSegmentBytes
}

// Advance implements partition.LogStartKeeper.
func (l *Log) Advance(ctx context.Context, tp cluster.TopicPartition, epoch cluster.LeaderEpoch, offset, batchBase cluster.Offset) (cluster.Offset, error) {
	res, err := l.cfg.Submitter.Submit(ctx, request.AdvanceLogStart{
		Partition: tp, LeaderEpoch: epoch, Offset: offset, BatchBase: batchBase,
	})
	if err != nil {
		return 0, err
	}
	start, ok := res.(request.LogStart)
	if !ok {
		return 0, fmt.Errorf("advance log start of %s: unexpected answer %T", tp, res)
	}
	return start.Offset, nil
}

// remoteError wraps what the tier is to blame for; the context's own errors and
// those of the data plane stay as they are.
func remoteError(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, partition.ErrOffsetOutOfRange), errors.Is(err, partition.ErrRemote):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", partition.ErrRemote, err)
}

// onSegment runs f on the segment that find returns. Where its object is not
// found, the catalog catches up and is asked again, as the segment may have been
// replaced or expired meanwhile, and so is the store (R5). ok is false where find found none. An object
// that turns out bad is remembered.
func (l *Log) onSegment(ctx context.Context, tp cluster.TopicPartition, find func() (catalog.Segment, bool, error), f func(catalog.Segment) error) (ok bool, err error) {
	seg, ok, err := find()
	if err != nil || !ok {
		return ok, err
	}
	err = f(seg)
	if !errors.Is(err, objstore.ErrNotFound) {
		return true, l.judge(tp, seg, err)
	}
	if err := l.cfg.CatchUp(ctx); err != nil {
		return true, fmt.Errorf("object %q is not in the store, and the catalog cannot be brought up to date: %w", seg.Key, err)
	}
	again, ok, ferr := find()
	if ferr != nil || !ok {
		return ok, ferr
	}
	// The same one, too: a store that lost it for a moment costs a request, not
	// the time for which a bad object is left alone.
	if err = f(again); errors.Is(err, objstore.ErrNotFound) {
		err = fmt.Errorf("%w: %q", ErrMissingObject, again.Key)
	}
	return true, l.judge(tp, again, err)
}
