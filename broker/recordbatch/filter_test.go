package recordbatch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
)

// randomBatch makes a batch with gaps, null keys and values, headers, and
// timestamps that rise and fall.
func randomBatch(rng *rand.Rand) Batch {
	o := Options{
		Codec: Codec(rng.IntN(5)), BaseOffset: cluster.Offset(rng.IntN(1000)), LeaderEpoch: cluster.LeaderEpoch(rng.IntN(5)),
		Transactional: rng.IntN(2) == 0, LogAppendTime: rng.IntN(4) == 0, AppendTimestamp: 777,
	}
	if rng.IntN(2) == 0 {
		o.Producer = &Producer{ID: 5, Epoch: 2, BaseSequence: math.MaxInt32 - 3}
	}
	if rng.IntN(4) == 0 {
		o.DeleteHorizon = 1_000_000 + rng.Int64N(1_000_000_000_000)
	}
	b := NewBuilder(o)
	at := o.BaseOffset
	for i := range 1 + rng.IntN(12) {
		at += cluster.Offset(rng.IntN(3))
		r := Record{Offset: at, Timestamp: 1_700_000_000_000 + rng.Int64N(100_000) - 50_000}
		if rng.IntN(8) > 0 {
			r.Key = fmt.Appendf([]byte{}, "%0*d", rng.IntN(4), i)
		}
		if rng.IntN(3) > 0 {
			r.Value = fmt.Appendf([]byte{}, "%0*d", rng.IntN(300), i)
		}
		for range rng.IntN(4) {
			h := Header{Key: fmt.Sprint("h", rng.IntN(3))}
			if rng.IntN(2) == 0 {
				h.Value = []byte("v")
			}
			r.Headers = append(r.Headers, h)
		}
		if b.AddRecord(r) == nil {
			at++
		}
	}
	if rng.IntN(3) == 0 {
		_ = b.SetLastOffset(at + 5)
	}
	return b.Build()
}

func recordsOf(t *testing.T, b Batch) []Record {
	t.Helper()
	require.NoError(t, b.Verify())
	var out []Record
	for r, err := range new(Decoder).Records(b) {
		require.NoError(t, err)
		out = append(out, r)
	}
	return out
}

func TestFilterLeavesRecordsAsTheyAre(t *testing.T) {
	var d Decoder
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := randomBatch(rng)
		all := recordsOf(t, b)
		keepAll, horizon := rng.IntN(3) == 0, int64(0)
		if rng.IntN(2) == 0 {
			horizon = 1_800_000_000_000
		}
		kept := map[cluster.Offset]bool{}
		var want []Record
		tombstones := 0
		for _, r := range all {
			if keepAll || rng.IntN(2) == 0 {
				kept[r.Offset] = true
				want = append(want, r)
				if r.Value == nil {
					tombstones++
				}
			}
		}
		i := 0
		dst, f, err := d.AppendFiltered([]byte("before"), b, Filter{DeleteHorizon: horizon, Keep: func(r KeyedRecord) bool {
			require.Equal(t, all[i].Offset, r.Offset)
			require.Equal(t, all[i].Key, r.Key)
			require.Equal(t, all[i].Value == nil, r.Tombstone)
			i++
			return kept[r.Offset]
		}})
		require.NoError(t, err)
		require.Equal(t, len(all), i)
		require.Equal(t, len(want), f.Kept)
		require.Equal(t, len(all)-len(want), f.Dropped)
		require.Equal(t, tombstones, f.Tombstones)
		out := Batch(dst[len("before"):])
		if len(want) == 0 {
			require.Empty(t, out)
			out = Batch(b.AppendEmptied(nil))
			require.False(t, out.HasDeleteHorizon())
			require.Equal(t, b.MaxTimestamp(), out.MaxTimestamp())
			require.Len(t, out, HeaderBytes)
		}
		stamped := horizon != 0 && !b.HasDeleteHorizon() && tombstones > 0
		require.Equal(t, stamped, f.Stamped)
		require.Equal(t, len(want) > 0 && len(want) == len(all) && !stamped, f.Unchanged() && f.Kept > 0)
		if f.Unchanged() && f.Kept > 0 {
			require.Equal(t, b, out)
		}
		require.Equal(t, want, recordsOf(t, out), "B5, seed %d", seed)
		if len(want) > 0 {
			require.Equal(t, stamped || b.HasDeleteHorizon(), out.HasDeleteHorizon())
			require.Equal(t, b.Compression(), out.Compression())
			if stamped {
				require.Equal(t, horizon, out.FirstTimestamp())
			}
			if !b.LogAppendTime() && !f.Unchanged() {
				greatest := NoTimestamp
				for _, r := range want {
					greatest = max(greatest, r.Timestamp)
				}
				require.Equal(t, greatest, out.MaxTimestamp())
			}
		}
		require.Equal(t, b.BaseOffset(), out.BaseOffset())
		require.Equal(t, b.LastOffset(), out.LastOffset())
		require.Equal(t, b.PartitionLeaderEpoch(), out.PartitionLeaderEpoch())
		require.Equal(t, b.ProducerID(), out.ProducerID())
		require.Equal(t, b.ProducerEpoch(), out.ProducerEpoch())
		require.Equal(t, b.BaseSequence(), out.BaseSequence())
		require.Equal(t, b.LastSequence(), out.LastSequence())
		require.Equal(t, b.IsTransactional(), out.IsTransactional())
		require.Equal(t, b.LogAppendTime(), out.LogAppendTime())
	}
}

// TestFilterOfMarkers: a marker gets its delete horizon although it is no
// tombstone, and is still one.
func TestFilterOfMarkers(t *testing.T) {
	o := Options{BaseOffset: 9, Producer: &Producer{ID: 3, Epoch: 1}}
	b := NewMarkerBatch(o, 1000, Marker{Type: ControlAbort, CoordinatorEpoch: 4})
	out, f, err := new(Decoder).AppendFiltered(nil, b, Filter{Keep: func(KeyedRecord) bool { return true }, DeleteHorizon: 5000})
	require.NoError(t, err)
	require.True(t, f.Stamped)
	m, ok, err := Batch(out).Marker()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Marker{Type: ControlAbort, CoordinatorEpoch: 4}, m)
	require.Equal(t, int64(5000), Batch(out).FirstTimestamp())
	require.Equal(t, int64(1000), recordsOf(t, out)[0].Timestamp)
	emptied := Batch(b.AppendEmptied(nil))
	require.NoError(t, emptied.Verify())
	require.True(t, emptied.IsControl())
	_, ok, err = emptied.Marker()
	require.NoError(t, err)
	require.False(t, ok)
}

func TestFilterOfDamage(t *testing.T) {
	b := NewBuilder(Options{})
	b.Add(1, []byte("k"), []byte("v"))
	whole := b.Build()
	bad := append(Batch(nil), whole...)
	bad[len(bad)-3]++ // within the record's lengths
	bad.setCRC()
	bad[HeaderBytes] = 0xff
	_, _, err := new(Decoder).AppendFiltered(nil, bad, Filter{Keep: func(KeyedRecord) bool { return true }})
	require.ErrorIs(t, err, ErrCorrupt)
	for _, err := range new(Decoder).Keys(bad) {
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func TestKeys(t *testing.T) {
	for seed := range uint64(300) {
		b := randomBatch(rand.New(rand.NewPCG(seed, 2)))
		all := recordsOf(t, b)
		plain, err := b.AppendUncompressed(nil, 0)
		require.NoError(t, err)
		bytes := 0
		for r, err := range new(Decoder).Keys(b) {
			require.NoError(t, err)
			require.Equal(t, all[0].Offset, r.Offset)
			require.Equal(t, all[0].Key, r.Key)
			require.Equal(t, all[0].Value == nil, r.Tombstone)
			all = all[1:]
			bytes += r.Bytes
		}
		require.Empty(t, all)
		require.Equal(t, len(plain)-HeaderBytes, bytes)
	}
}
