package segmentobject

import (
	"context"
	"errors"
	"io"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/objstore"
)

// ErrCorrupt is matched by every *CorruptError.
var ErrCorrupt = errors.New("corrupt segment object")

var errNotYet = errors.New("not built yet")

// ChunkBytes is the unit of the checksums over the batches.
const ChunkBytes = 1 << 20

// Object is a segment object before it is stored: the batches where they lie,
// and what follows them in memory. It implements objstore.RangeSummer.
type Object struct{}

// Build reads the segment once, through a buffer of ChunkBytes, verifies it and
// makes the indexes and the footer.
func Build(ctx context.Context, src Source) (*Object, error) { return nil, errNotYet }

// Size, ReadAt and RangeCRC32C implement objstore.RangeSummer.
func (o *Object) Size() int64                             { return 0 }
func (o *Object) ReadAt(p []byte, off int64) (int, error) { return 0, errNotYet }
func (o *Object) RangeCRC32C(off, n int64) (uint32, bool) { return 0, false }

// Summary is what goes into the catalog with PublishSegment.
func (o *Object) Summary() request.ObjectSummary { return request.ObjectSummary{} }

// PutOptions are the options to upload with: absent, with checksum.
func (o *Object) PutOptions() objstore.PutOptions { return objstore.PutOptions{} }

// Index is everything of an object but the batches: one GET. It is immutable and
// safe for concurrent use; all its bytes have been verified.
type Index struct{}

// ReadIndex fetches the index with one GET, by what the catalog says.
func ReadIndex(ctx context.Context, s objstore.Store, key string, sum request.ObjectSummary) (*Index, error) {
	return nil, errNotYet
}

// OpenIndex fetches the index of an object of which only key and size are
// known: one GET, two where the index is large. size < 0: HEAD first.
func OpenIndex(ctx context.Context, s objstore.Store, key string, size int64) (*Index, error) {
	return nil, errNotYet
}

// ParseIndex reads the index from the object's bytes from sum.IndexPosition to
// its end, wherever they come from. It keeps b.
func ParseIndex(key string, sum request.ObjectSummary, b []byte) (*Index, error) {
	return nil, errNotYet
}

// Bytes is the memory that the index holds.
func (x *Index) Bytes() int64 { return 0 }

// Summary is what the catalog would hold of the object.
func (x *Index) Summary() request.ObjectSummary { return request.ObjectSummary{} }

// Range is a range of positions of the batches: [Start, End).
type Range struct{ Start, End int64 }

// Find returns where the batch lies that holds offset or, where none does, the
// next one: from Range.Start on, which is the start of a batch at or before it.
// The batches that start before Range.End include the last one with a base
// offset at or below offset. ok is false where offset is outside [Base, End).
func (x *Index) Find(offset cluster.Offset) (r Range, ok bool) { return Range{}, false }

// FindTimestamp returns where to look for the first record at or after from
// with a timestamp at or above ts: as Find. ok is false where the object has none.
func (x *Index) FindTimestamp(ts int64, from cluster.Offset) (r Range, ok bool) {
	return Range{}, false
}

// Aborted returns the aborted transactions that overlap [from, to).
func (x *Index) Aborted(from, to cluster.Offset) []producerstate.AbortedTxn { return nil }

// ProducerSnapshot is the producer state at End; empty where there was none.
// The caller does not change it.
func (x *Index) ProducerSnapshot() []byte { return nil }

// Epochs is the leader epoch list up to End.
func (x *Index) Epochs() []leaderepoch.Entry { return nil }

// VerifyChunks compares b, the batches' bytes from position on, with the chunk
// checksums. position is a multiple of ChunkBytes; b ends at such a multiple or
// at the end of the batches.
func (x *Index) VerifyChunks(position int64, b []byte) error { return errNotYet }

// VerifyChunksAt is VerifyChunks for bytes that lie in a file: r holds
// them from at on.
func (x *Index) VerifyChunksAt(position int64, r io.ReaderAt, at, n int64) error { return errNotYet }

// Verify reads the whole object and checks every checksum and every batch.
func Verify(ctx context.Context, s objstore.Store, key string, size int64) (*Index, error) {
	return nil, errNotYet
}
