package locallog

import (
	"testing"

	"strandline/broker/recordbatch"
	"strandline/metadata/disk"
)

func benchLog(b *testing.B) *Log {
	cfg := config(disk.OS())
	cfg.Dir = b.TempDir() + "/topic-0"
	cfg.Settings = DefaultSettings()
	l, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(false) })
	return l
}

func benchBatch(bytes int) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for b.UncompressedBytes() < bytes {
		b.Add(startTime.UnixMilli(), nil, make([]byte, 100))
	}
	return b.Build()
}

func BenchmarkAppend(b *testing.B) {
	for name, bytes := range map[string]int{"100B": 100, "16KiB": 16 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			l := benchLog(b)
			batch := benchBatch(bytes)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				batch.SetBaseOffset(l.EndOffset())
				if _, err := l.Append(batch); err != nil {
					b.Fatal(err)
				}
				if l.Bytes() > 2<<30 {
					if _, _, err := l.DeleteSealedBelow(l.EndOffset()); err != nil {
						b.Fatal(err)
					}
					if _, err := l.RunDeferred(startTime.Add(1 << 50)); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkRead finds the regions of sequential fetches; it reads no record.
func BenchmarkRead(b *testing.B) {
	for name, sealed := range map[string]bool{"active": false, "sealed": true} {
		b.Run(name, func(b *testing.B) {
			l := benchLog(b)
			batch := benchBatch(16 << 10)
			for l.Bytes() < 256<<20 {
				batch.SetBaseOffset(l.EndOffset())
				if _, err := l.Append(batch); err != nil {
					b.Fatal(err)
				}
			}
			if sealed {
				if _, err := l.Roll(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			from := l.StartOffset()
			for b.Loop() {
				s, err := l.Read(from, l.EndOffset(), 1<<20, true)
				if err != nil {
					b.Fatal(err)
				}
				if from = s.NextOffset; from >= l.EndOffset() {
					from = 0
				}
				s.Release()
			}
		})
	}
}
