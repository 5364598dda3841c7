package partition

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// onDisk is a leading replica on a real file system.
func onDisk(b *testing.B) *fixture {
	f := &fixture{t: b, now: startTime}
	settings := testSettings()
	settings.SegmentBytes, settings.MaxMessageBytes = 64<<20, 8<<20
	f.config.Settings = settings
	log, err := locallog.Open(locallog.Config{FS: disk.OS(), Dir: b.TempDir() + "/t-0", Partition: "t-0", Settings: LogSettings(settings), LogStart: cluster.NoOffset})
	require.NoError(b, err)
	f.config.TopicPartition, f.config.Topic, f.config.Self, f.config.Log = testTP, "t", self, log
	f.p = New(f.config)
	b.Cleanup(func() { _ = f.p.Close(false) })
	f.lead(1)
	return f
}

// BenchmarkAppend is one produce of one batch without a sync, and now and then
// the removal of old segments so that the disk does not fill.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			f := onDisk(b)
			builder := recordbatch.NewBuilder(recordbatch.Options{})
			for n := 0; n < size; n += 100 {
				builder.Add(startTime.UnixMilli(), nil, make([]byte, 92))
			}
			batch := builder.Build()
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				batch.SetBaseOffset(0)
				_, _, err := f.p.Append(AppendRequest{Records: batch, CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1})
				if err != nil {
					b.Fatal(err)
				}
				if (i+1)*size%(256<<20) < size {
					f.p.showLogStart(f.p.LogEndOffset())
					if _, _, err := f.p.TrimLocal(f.p.LogEndOffset()); err != nil {
						b.Fatal(err)
					}
					if _, err := f.p.log.RunDeferred(f.now.AddDate(1, 0, 0)); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkRead makes the regions of a 1 MiB fetch; no byte is read.
func BenchmarkRead(b *testing.B) {
	f := onDisk(b)
	builder := recordbatch.NewBuilder(recordbatch.Options{})
	for range 160 {
		builder.Add(startTime.UnixMilli(), nil, make([]byte, 92))
	}
	batch := builder.Build()
	for range 2000 {
		batch.SetBaseOffset(0)
		if _, err := f.try(batch, -1); err != nil {
			b.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		from func(i int) cluster.Offset
	}{
		{"random", func(i int) cluster.Offset { return cluster.Offset(i*7919) % f.p.HighWatermark() }},
		{"end", func(int) cluster.Offset { return f.p.HighWatermark() }},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r, err := f.p.Read(consumer(test.from(i)))
				if err != nil {
					b.Fatal(err)
				}
				r.Release()
			}
		})
	}
}
