package recordbatch_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

var codecs = []recordbatch.Codec{
	recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd,
}

// kafkaBatch is a batch that Apache Kafka 4.4.0 wrote.
func kafkaBatch(t testing.TB, name string) recordbatch.Batch {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "kafka-"+name+".batch"))
	require.NoError(t, err)
	b, rest, err := recordbatch.First(data)
	require.NoError(t, err)
	require.Empty(t, rest)
	return b
}

// kafkaRecords are the records of kafkaBatch; big is true of the compressed
// ones, where one value spans several compression blocks.
func kafkaRecords(base cluster.Offset, big bool) []recordbatch.Record {
	var records []recordbatch.Record
	for i := range 20 {
		r := recordbatch.Record{Offset: base + cluster.Offset(i), OffsetDelta: int32(i), Timestamp: 1700000000000 + int64(i)*1000}
		if i%3 == 0 {
			r.Timestamp = 1700000000000 - int64(i)
		}
		switch i % 4 {
		case 0:
		case 1:
			r.Key = []byte{}
		default:
			r.Key = []byte("key-" + itoa(i))
		}
		switch {
		case big && i == 13:
			r.Value = make([]byte, 100_000)
			for j := range r.Value {
				r.Value[j] = byte(j*7+(j>>8)*13) & 0x3f
			}
		case i%5 == 0:
		case i%5 == 1:
			r.Value = []byte{}
		default:
			r.Value = []byte("value-" + itoa(i))
		}
		for h := range i % 4 {
			header := recordbatch.Header{Key: "h" + itoa(h), Value: []byte("hv-" + itoa(i))}
			if h == 1 {
				header.Value = nil
			}
			if h == 2 {
				header.Value = []byte{}
			}
			r.Headers = append(r.Headers, header)
		}
		records = append(records, r)
	}
	return records
}

func itoa(i int) string {
	if i >= 10 {
		return string(rune('0'+i/10)) + string(rune('0'+i%10))
	}
	return string(rune('0' + i))
}

// decode collects copies of a batch's records.
func decode(t testing.TB, b recordbatch.Batch) []recordbatch.Record {
	t.Helper()
	records, err := decodeAll(b)
	require.NoError(t, err)
	return records
}

func decodeAll(b recordbatch.Batch) ([]recordbatch.Record, error) {
	var records []recordbatch.Record
	for r, err := range new(recordbatch.Decoder).Records(b) {
		if err != nil {
			return records, err
		}
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		for i := range r.Headers {
			r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
		}
		records = append(records, r)
	}
	return records, nil
}

// build makes a batch of the given records from offset 0.
func build(o recordbatch.Options, records ...recordbatch.Record) recordbatch.Batch {
	b := recordbatch.NewBuilder(o)
	for _, r := range records {
		b.Add(r.Timestamp, r.Key, r.Value, r.Headers...)
	}
	return b.Build()
}

// stamped are records with these timestamps.
func stamped(timestamps ...int64) []recordbatch.Record {
	var records []recordbatch.Record
	for _, ts := range timestamps {
		records = append(records, recordbatch.Record{Timestamp: ts, Key: []byte("k"), Value: []byte("v")})
	}
	return records
}
