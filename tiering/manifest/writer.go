package manifest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
)

// ErrSuperseded: a manifest of a later leader epoch, or the same version, exists.
var ErrSuperseded = errors.New("a later manifest exists")

// DefaultRunSegments is how many segments go into a run.
const DefaultRunSegments = 1024

// manifestBytesMax bounds what is read as a manifest or a run.
const manifestBytesMax = 64 << 20

// Writer writes manifests of one location.
type Writer struct {
	Store  objstore.Store
	Layout Layout
	// RunSegments is how many segments go into a run; a manifest lists fewer
	// than twice as many beside its runs. Default DefaultRunSegments.
	RunSegments int
}

func (w Writer) runSegments() int {
	if w.RunSegments > 0 {
		return w.RunSegments
	}
	return DefaultRunSegments
}

// Write makes m durable as the manifest of its version, with the live segments
// that segments yields from an offset on, in order. previous, which may be nil,
// is the manifest whose runs may be used again. It returns m completed.
func (w Writer) Write(ctx context.Context, previous *Manifest, m Manifest, segments func(from cluster.Offset) iter.Seq2[Segment, error]) (*Manifest, error) {
	m.Location = w.Layout.Location
	m.Runs, m.Segments = nil, nil
	from := m.LogStart
	if previous != nil {
		for _, r := range previous.Runs {
			if r.End > m.LiveStart && r.End <= m.RemoteEnd {
				m.Runs = append(m.Runs, r)
				from = r.End
			}
		}
	}
	for s, err := range segments(from) {
		if err != nil {
			return nil, err
		}
		m.Segments = append(m.Segments, s)
		if len(m.Segments) < 2*w.runSegments() {
			continue
		}
		ref, err := w.putRun(ctx, m.Partition, m.Segments[:w.runSegments()])
		if err != nil {
			return nil, err
		}
		m.Runs = append(m.Runs, ref)
		m.Segments = append([]Segment(nil), m.Segments[w.runSegments():]...)
	}
	key := w.Layout.ManifestKey(m.Partition, m.Version)
	err := w.put(ctx, key, m.Encode())
	if errors.Is(err, objstore.ErrExists) {
		err = fmt.Errorf("%w: %q", ErrSuperseded, key)
	}
	if err != nil {
		return nil, err
	}
	return &m, nil
}

func (w Writer) putRun(ctx context.Context, tp cluster.TopicPartition, segments []Segment) (RunRef, error) {
	run := Run{Partition: tp, Segments: segments}
	b := run.Encode()
	key := w.Layout.runKey(tp, segments[0].Base, cluster.NewUUID())
	err := w.put(ctx, key, b)
	return RunRef{
		Key: key, Base: segments[0].Base, End: segments[len(segments)-1].End,
		Count: int32(len(segments)), Bytes: int64(len(b)), CRC32C: objstore.CRC32C(b),
	}, err
}

func (w Writer) put(ctx context.Context, key string, b []byte) error {
	_, err := w.Store.Put(ctx, key, objstore.NewBytesBody(b), objstore.PutOptions{
		IfAbsent: true, CRC32C: objstore.CRC32C(b), HasCRC: true,
	})
	return err
}

// Stored is a manifest object as a LIST shows it.
type Stored struct {
	Key string
	Version
	Modified time.Time
}

// List returns the manifests of a partition, oldest version first.
func (w Writer) List(ctx context.Context, tp cluster.TopicPartition) ([]Stored, error) {
	var out []Stored
	prefix := w.Layout.ManifestPrefix(tp)
	for info, err := range w.Store.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		if v, ok := parseManifestKey(strings.TrimPrefix(info.Key, prefix)); ok {
			out = append(out, Stored{info.Key, v, info.Modified})
		}
	}
	return out, nil
}

// ListRuns returns the keys of the runs of a partition.
func (w Writer) ListRuns(ctx context.Context, tp cluster.TopicPartition) ([]string, error) {
	var keys []string
	for info, err := range w.Store.List(ctx, w.Layout.PartitionPrefix(tp)+runName, "") {
		if err != nil {
			return nil, err
		}
		keys = append(keys, info.Key)
	}
	return keys, nil
}

// Latest returns the manifest that counts; nil where there is none.
func (w Writer) Latest(ctx context.Context, tp cluster.TopicPartition) (*Manifest, error) {
	list, err := w.List(ctx, tp)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return w.Read(ctx, list[len(list)-1].Key)
}

// Read returns a manifest by its key.
func (w Writer) Read(ctx context.Context, key string) (*Manifest, error) {
	b, err := objstore.ReadAll(ctx, w.Store, key, manifestBytesMax)
	if err != nil {
		return nil, err
	}
	return Decode(key, b)
}

// Live yields the live segments that a manifest names, its runs' included.
func (w Writer) Live(ctx context.Context, m *Manifest) iter.Seq2[Segment, error] {
	return func(yield func(Segment, error) bool) {
		for _, ref := range m.Runs {
			run, err := w.readRun(ctx, m, ref)
			if err != nil {
				yield(Segment{}, err)
				return
			}
			for _, s := range run.Segments {
				if m.Names(s.End) && !yield(s, nil) {
					return
				}
			}
		}
		for _, s := range m.Segments {
			if m.Names(s.End) && !yield(s, nil) {
				return
			}
		}
	}
}

func (w Writer) readRun(ctx context.Context, m *Manifest, ref RunRef) (*Run, error) {
	b, err := objstore.ReadAll(ctx, w.Store, ref.Key, manifestBytesMax)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != ref.Bytes || objstore.CRC32C(b) != ref.CRC32C {
		return nil, &CorruptError{ref.Key, 0, "not the run that the manifest names"}
	}
	run, err := DecodeRun(ref.Key, b)
	if err == nil && run.Partition != m.Partition {
		err = &CorruptError{ref.Key, 0, "run of another partition"}
	}
	return run, err
}
