package recordbatch_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// clientSets are message sets that kafka-python 2.0.2 and sarama 1.61.1 put into
// their produce requests, by format and codec.
func clientSets(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.set")
	require.NoError(t, err)
	require.Len(t, files, 15)
	sets := map[string][]byte{}
	for _, f := range files {
		set, err := os.ReadFile(f)
		require.NoError(t, err)
		sets[strings.TrimSuffix(filepath.Base(f), ".set")] = set
	}
	return sets
}

func formatOf(t testing.TB, name string) (magic int8, codec recordbatch.Codec) {
	t.Helper()
	parts := strings.Split(name, "-")
	codec, err := recordbatch.ParseCodec(parts[len(parts)-1])
	require.NoError(t, err)
	return int8(parts[len(parts)-2][1] - '0'), codec
}

// clientMessages are what was sent: three without a key, one without a value.
func clientMessages(magic int8, codec recordbatch.Codec) []recordbatch.Message {
	var all []recordbatch.Message
	for i := range 7 {
		m := recordbatch.Message{Offset: cluster.Offset(i), Timestamp: recordbatch.NoTimestamp, Magic: magic, Codec: codec}
		if magic > 0 {
			m.Timestamp = 1700000000000 + int64(i)*1000
		}
		if i%3 != 0 {
			m.Key = []byte("k" + itoa(i))
		}
		if i != 5 {
			m.Value = bytes.Repeat([]byte("value-"+itoa(i)+" "), 20)
		}
		all = append(all, m)
	}
	return all
}

func messages(d *recordbatch.Decoder, set []byte) ([]recordbatch.Message, error) {
	var all []recordbatch.Message
	for m, err := range d.Messages(set) {
		if err != nil {
			return all, err
		}
		m.Key, m.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
		all = append(all, m)
	}
	return all, nil
}

func TestMessageSetsOfClients(t *testing.T) {
	for name, set := range clientSets(t) {
		t.Run(name, func(t *testing.T) {
			magic, codec := formatOf(t, name)
			var d recordbatch.Decoder
			got, err := messages(&d, set)
			require.NoError(t, err)
			want := clientMessages(magic, codec)
			for i := range got {
				got[i].Offset = cluster.Offset(i) // producers number as they like
			}
			require.Equal(t, want, got)

			b, up, err := d.AppendUpgraded([]byte("before"), set, 1<<20)
			require.NoError(t, err)
			require.Equal(t, recordbatch.Upgraded{Messages: 7, Codec: codec}, up)
			batch := recordbatch.Batch(bytes.TrimPrefix(b, []byte("before")))
			require.NoError(t, batch.VerifyProduced())
			records := decode(t, batch)
			require.Len(t, records, 7)
			for i, r := range records {
				require.Equal(t, recordbatch.Record{
					Offset: cluster.Offset(i), OffsetDelta: int32(i), Timestamp: want[i].Timestamp, Key: want[i].Key, Value: want[i].Value,
				}, r)
			}

			// What a client wrote is what another reads.
			var g recordbatch.Downgrader
			stored := recordbatch.Batch(batch.AppendCompressed(nil, codec, codec.DefaultLevel()))
			stored.SetBaseOffset(100)
			back, done, err := g.Append(nil, stored, magic, 0, 1<<20, false)
			require.NoError(t, err)
			require.Equal(t, recordbatch.Downgraded{Messages: 7}, done)
			got, err = messages(&d, back)
			require.NoError(t, err)
			for i := range want {
				want[i].Offset += 100
			}
			require.Equal(t, want, got)
		})
	}
}

// Every byte but those of the offset, which no checksum covers, is noticed.
func TestDamagedMessageSets(t *testing.T) {
	for name, set := range clientSets(t) {
		magic, codec := formatOf(t, name)
		var d recordbatch.Decoder
		before, err := messages(&d, set)
		require.NoError(t, err)
		for i := range set {
			damaged := bytes.Clone(set)
			damaged[i] ^= 0x55
			got, err := messages(&d, damaged)
			if err == nil {
				for j := range got {
					got[j].Offset, before[j].Offset = 0, 0
				}
				require.Equal(t, before, got, "%s byte %d: read as something else", name, i)
				require.True(t, codec == recordbatch.None || i < 8, "%s byte %d", name, i)
				continue
			}
			require.ErrorIs(t, err, recordbatch.ErrCorrupt, "%s v%d byte %d", name, magic, i)
		}
		for i := 1; i < len(set); i++ {
			if _, err := messages(&d, set[:i]); err == nil {
				require.Equal(t, recordbatch.None, codec, "%s cut at %d", name, i)
			}
		}
	}
}

// message makes one of the old messages by hand.
func message(magic int8, attributes byte, offset, timestamp int64, key, value []byte) []byte {
	be := binary.BigEndian
	body := []byte{byte(magic), attributes}
	if magic > 0 {
		body = be.AppendUint64(body, uint64(timestamp))
	}
	for _, f := range [][]byte{key, value} {
		if f == nil {
			body = be.AppendUint32(body, 0xffffffff)
			continue
		}
		body = append(be.AppendUint32(body, uint32(len(f))), f...)
	}
	m := be.AppendUint64(nil, uint64(offset))
	m = be.AppendUint32(m, uint32(4+len(body)))
	m = be.AppendUint32(m, crc32.ChecksumIEEE(body))
	return append(m, body...)
}

func gzipped(t testing.TB, inner ...[]byte) []byte {
	t.Helper()
	return recordbatch.Gzip.Compress(nil, bytes.Join(inner, nil))
}

func TestMessageSetsThatAreRefused(t *testing.T) {
	plain := message(1, 0, 0, 5, nil, []byte("v"))
	large := make([]byte, 1<<20)
	for _, c := range []struct {
		name    string
		set     []byte
		is      error
		invalid bool
	}{
		{"cut short", plain[:len(plain)-1], recordbatch.ErrTruncated, false},
		{"too small a size", append(binary.BigEndian.AppendUint32(make([]byte, 8), 13), make([]byte, 13)...), recordbatch.ErrBadLength, false},
		{"a negative size", append(binary.BigEndian.AppendUint32(make([]byte, 8), 1<<31), make([]byte, 40)...), recordbatch.ErrBadLength, false},
		{"magic 2", message(2, 0, 0, 5, nil, []byte("v")), recordbatch.ErrBadMagic, false},
		{"zstd", message(1, 4, 0, 5, nil, []byte("v")), recordbatch.ErrUnknownCodec, false},
		{"no such codec", message(1, 7, 0, 5, nil, []byte("v")), recordbatch.ErrUnknownCodec, false},
		{"a value that ends before its message", func() []byte {
			m := message(1, 0, 0, 5, nil, []byte("value"))
			binary.BigEndian.PutUint32(m[30:], 3)
			binary.BigEndian.PutUint32(m[12:], crc32.ChecksumIEEE(m[16:]))
			return m
		}(), recordbatch.ErrBadRecord, false},
		{"compressed nothing", message(1, 1, 0, 5, nil, nil), recordbatch.ErrBadRecord, true},
		{"compressed no messages", message(1, 1, 0, 5, nil, gzipped(t)), recordbatch.ErrBadCount, true},
		{"compressed rubbish", message(1, 1, 0, 5, nil, []byte("rubbish")), recordbatch.ErrBadCompression, false},
		{"nested", message(1, 1, 0, 5, nil, gzipped(t, message(1, 1, 0, 5, nil, gzipped(t, plain)))), recordbatch.ErrNested, true},
		{"v0 within v1", message(1, 1, 0, 5, nil, gzipped(t, message(0, 0, 0, 5, nil, []byte("v")))), recordbatch.ErrBadRecord, true},
		{"a damaged message within", message(1, 1, 0, 5, nil, gzipped(t, append(bytes.Clone(plain[:len(plain)-1]), 'w'))), recordbatch.ErrBadCRC, false},
		{"a cut message within", message(1, 1, 0, 5, nil, gzipped(t, plain, plain[:20])), recordbatch.ErrBadRecord, false},
		{"a bomb", message(1, 1, 0, 5, nil, gzipped(t, message(1, 0, 0, 5, nil, large))), recordbatch.ErrTooLarge, false},
		{"many small bombs", bytes.Repeat(message(1, 1, 0, 5, nil, gzipped(t, message(1, 0, 0, 5, nil, large[:40<<10]))), 30), recordbatch.ErrTooLarge, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := recordbatch.NewDecoder(1 << 20)
			_, err := messages(d, c.set)
			require.ErrorIs(t, err, c.is)
			require.ErrorIs(t, err, recordbatch.ErrCorrupt)
			require.Equal(t, c.invalid, strings.Contains(err.Error(), recordbatch.ErrInvalid.Error()))
			kept, up, err := d.AppendUpgraded([]byte("kept"), append(bytes.Clone(plain), c.set...), 1<<20)
			require.ErrorIs(t, err, c.is)
			require.Equal(t, "kept", string(kept))
			require.Zero(t, up)
		})
	}
}

func TestOffsetsAndTimesWithinCompressedMessages(t *testing.T) {
	inner := func(magic int8, base int64) []byte {
		return gzipped(t, message(magic, 0, base, 10, nil, []byte("a")), message(magic, 0, base+3, 30, nil, []byte("b")), message(magic, 0, base+4, 20, nil, []byte("c")))
	}
	offsets := func(set []byte) (o, ts []int64, stamped bool) {
		all, err := messages(&recordbatch.Decoder{}, set)
		require.NoError(t, err)
		for _, m := range all {
			o, ts = append(o, int64(m.Offset)), append(ts, m.Timestamp)
			stamped = m.LogAppendTime
		}
		return o, ts, stamped
	}
	o, ts, stamped := offsets(message(1, 1, 1004, 30, nil, inner(1, 0)))
	require.Equal(t, []int64{1000, 1003, 1004}, o, "counted back from the wrapper")
	require.Equal(t, []int64{10, 30, 20}, ts)
	require.False(t, stamped)
	o, ts, stamped = offsets(message(1, 1|8, 1004, 99, nil, inner(1, 0)))
	require.Equal(t, []int64{1000, 1003, 1004}, o)
	require.Equal(t, []int64{99, 99, 99}, ts, "the wrapper's, which a broker set")
	require.True(t, stamped)
	o, ts, _ = offsets(message(0, 1, 7, 0, nil, inner(0, 500)))
	require.Equal(t, []int64{500, 503, 504}, o, "absolute in v0, whatever the wrapper says")
	require.Equal(t, []int64{-1, -1, -1}, ts)
}

// A set that fits no batch becomes several, each within the limit.
func TestUpgradeOfALargeSet(t *testing.T) {
	var set []byte
	for i := range 50 {
		set = append(set, message(0, 0, 0, 0, []byte("k"), bytes.Repeat([]byte{byte(i)}, 1000))...)
	}
	set = append(set, message(0, 0, 0, 0, nil, make([]byte, 9000))...) // alone, too large
	set = append(set, message(0, 0, 0, 0, nil, nil)...)
	var d recordbatch.Decoder
	b, up, err := d.AppendUpgraded(nil, set, 5000)
	require.NoError(t, err)
	require.Equal(t, 52, up.Messages)
	var sizes []int
	n := 0
	for len(b) > 0 {
		var batch recordbatch.Batch
		batch, b, err = recordbatch.First(b)
		require.NoError(t, err)
		require.NoError(t, batch.VerifyProduced())
		sizes = append(sizes, len(batch))
		n += len(decode(t, batch))
	}
	require.Equal(t, 52, n)
	require.Len(t, sizes, 15) // 13 times at most 4, the large one, the empty one
	for i, size := range sizes {
		require.True(t, size <= 5000 || i == 13, "batch %d has %d bytes", i, size)
	}
}

func FuzzMessages(f *testing.F) {
	for _, set := range clientSets(f) {
		f.Add(set)
	}
	f.Fuzz(func(t *testing.T, set []byte) {
		const limit = 1 << 20
		d := recordbatch.NewDecoder(limit)
		got, err := messages(d, set)
		total := 0
		for _, m := range got {
			total += len(m.Key) + len(m.Value)
		}
		if total > limit+len(set) {
			t.Fatalf("%d bytes of %d", total, len(set))
		}
		b, up, upErr := d.AppendUpgraded(nil, set, limit)
		if (err == nil) != (upErr == nil) {
			t.Fatalf("decoder says %v, converter %v", err, upErr)
		}
		if err != nil {
			require.ErrorIs(t, err, recordbatch.ErrCorrupt)
			return
		}
		require.Equal(t, len(got), up.Messages)
		// Up and down again is the same, but for the numbers.
		var g recordbatch.Downgrader
		magic := int8(1)
		if len(got) > 0 {
			magic = got[0].Magic
		}
		var set2 []byte
		at := cluster.Offset(0)
		for len(b) > 0 {
			var batch recordbatch.Batch
			batch, b, err = recordbatch.First(b)
			require.NoError(t, err)
			batch.SetBaseOffset(at)
			at = batch.NextOffset()
			set2, _, err = g.Append(set2, batch, magic, 0, 1<<30, false)
			require.NoError(t, err)
		}
		again, err := messages(recordbatch.NewDecoder(0), set2)
		require.NoError(t, err)
		require.Equal(t, len(got), len(again))
		for i := range got {
			require.Equal(t, cluster.Offset(i), again[i].Offset)
			require.Equal(t, got[i].Key, again[i].Key)
			require.Equal(t, got[i].Value, again[i].Value)
			if magic > 0 && got[i].Magic > 0 && !again[i].LogAppendTime {
				require.Equal(t, got[i].Timestamp, again[i].Timestamp)
			}
		}
	})
}
