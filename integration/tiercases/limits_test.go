package tiercases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// Segments that are in both tiers count once, also right after a restart, when
// the broker has just learnt what is remote.
func TestSizeCountsOnceAfterRestarts(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	b.create("once", 1, small(11_200, "retention.bytes", "130000", "local.retention.bytes", "-2"))
	b.write("once", 0, 0, 100, 1000, time.Time{})
	b.tiered("once", 0, 9)
	require.Zero(t, b.offset("once", 0, -4), "everything is in both tiers")
	for i := range 3 {
		b.again(i%2 == 0)
		b.marker(fmt.Sprint("once-", i))
		require.Zero(t, b.offset("once", 0, -2), "about 110 of 130 thousand bytes are used")
	}
	b.check("once", 0, 0, 100, 1000)
}

// An idle segment is rolled by segment.ms and leaves for the tier without any
// further write.
func TestIdleSegmentLeaves(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	b.create("idle", 2, map[string]string{"segment.ms": "500", "local.retention.ms": "1", "file.delete.delay.ms": "100"})
	b.write("idle", 0, 0, 20, 1000, time.Time{})
	b.write("idle", 1, 0, 20, 1000, time.Now().Add(-time.Hour))
	for p := range int32(2) {
		kit.Eventually(t, 20*time.Second, "the whole partition is remote", func() bool {
			s := b.partition("idle", p)
			return s.RemoteEndOffset == 20 && s.LocalBytes == 0
		})
	}
	b.again(true)
	for p := range int32(2) {
		b.check("idle", p, 0, 20, 1000)
		b.write("idle", p, 20, 5, 1000, time.Time{})
		b.check("idle", p, 0, 25, 1000)
	}
}

// LO-06: readers from the start, while retention runs as fast as it can, see
// data or OFFSET_OUT_OF_RANGE, in either tier, through restarts.
func TestReadersWhileRetentionRuns(t *testing.T) {
	t.Parallel()
	run := 6 * time.Second
	if kit.Long() {
		run = 10 * time.Minute
	}
	for _, kind := range bothKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, fast())
			b.create("brief", 1, small(11_200, "remote.storage.enable", kind.tiered, "retention.ms", "1000", "segment.ms", "500", "local.retention.bytes", "20000", "retention.bytes", "1000000"))
			n := int64(0)
			for round := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), run/3)
				var group sync.WaitGroup
				for reader := range 2 {
					group.Go(func() {
						if err := b.readFromStart(ctx, reader == 1); err != nil {
							t.Error(err)
						}
					})
				}
				tick := time.NewTicker(25 * time.Millisecond)
				for ctx.Err() == nil {
					<-tick.C
					b.write("brief", 0, n, 5, 1000, time.Time{})
					n += 5
				}
				tick.Stop()
				cancel()
				group.Wait()
				low, end := b.offset("brief", 0, -2), b.offset("brief", 0, -1)
				require.EqualValues(t, n, end)
				require.Positive(t, low, "retention has run")
				require.LessOrEqual(t, low, end)
				b.again(round%2 == 0)
				require.GreaterOrEqual(t, b.offset("brief", 0, -2), low, "the start never goes back")
				require.EqualValues(t, n, b.offset("brief", 0, -1))
			}
			require.NotContains(t, b.Log(), "level=ERROR")
		})
	}
}

// readFromStart reads the topic from its start until ctx ends, beginning again
// whenever its offset has gone, or all the time.
func (b *broker) readFromStart(ctx context.Context, always bool) error {
	c := kit.Dial(b.t, b.Addr)
	next, read := int64(-1), 0
	for ctx.Err() == nil {
		if next < 0 || always {
			next = b.offset("brief", 0, -2)
		}
		req := kit.Fetch(12, "brief", 0, next, 20_000)
		c.Send(req)
		resp, err := c.Receive(req)
		if err != nil {
			return err
		}
		p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		switch err := kerr.ErrorForCode(p.ErrorCode); {
		case err == nil:
		case errors.Is(err, kerr.OffsetOutOfRange):
			if start := b.offset("brief", 0, -2); start <= next {
				return fmt.Errorf("offset %d is refused, but the log starts at %d", next, start)
			}
			next = -1
			continue
		default:
			return fmt.Errorf("at %d: %w", next, err)
		}
		got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "brief", Offset: next}, &p, kgo.DefaultDecompressor(), nil)
		for _, r := range got.Records {
			if r.Offset != next || string(r.Value) != string(value("brief", 0, next, 1000)) {
				return fmt.Errorf("record at %d: offset %d, %.30s", next, r.Offset, r.Value)
			}
			next++
			read++
		}
	}
	if read == 0 {
		return fmt.Errorf("nothing was read")
	}
	return nil
}

// The end of each leader epoch, of which every start makes one, is known in
// either tier and follows the log's start.
func TestEpochsOverTwoTiers(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	b.create("epochs", 1, small(11_200))
	type span struct{ epoch, end int64 }
	var spans []span
	n := int64(0)
	for round := range 5 {
		b.write("epochs", 0, n, 25, 1000, time.Time{})
		n += 25
		m := kmsg.NewPtrMetadataRequest()
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = kmsg.StringPtr("epochs")
		m.Topics = append(m.Topics, mt)
		resp, err := m.RequestWith(t.Context(), b.cl)
		require.NoError(t, err)
		spans = append(spans, span{int64(resp.Topics[0].Partitions[0].LeaderEpoch), n})
		b.again(round%2 == 0)
	}
	b.write("epochs", 0, n, 5, 1000, time.Time{})
	b.tiered("epochs", 0, 9)
	b.localOnlyTail("epochs", 0)
	ask := func(epoch int64) (int64, int64) {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version, req.ReplicaID = 4, -1
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "epochs"
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.LeaderEpoch = -1, int32(epoch)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := kit.Dial(t, b.Addr).Call(req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		return int64(p.LeaderEpoch), p.EndOffset
	}
	verify := func(start int64) {
		t.Helper()
		for _, s := range spans {
			epoch, end := ask(s.epoch)
			if s.end > start {
				require.Equal(t, s, span{epoch, end}, "log start %d", start)
			} else {
				require.Equal(t, start, end, "epoch %d has gone with its records", s.epoch)
			}
		}
		epoch, end := ask(spans[4].epoch + 50)
		require.Equal(t, span{-1, -1}, span{epoch, end}, "an epoch that has not been")
	}
	verify(0)
	b.trim("epochs", 60)
	verify(60)
	b.again(true)
	verify(60)
}
