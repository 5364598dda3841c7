package partition

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/metadata/cluster"
)

// TestALeaderThatIsAloneHasItsEndAtOnce: whoever finds it leading finds its high
// watermark where the log ends, as there is nobody to wait for.
func TestALeaderThatIsAloneHasItsEndAtOnce(t *testing.T) {
	f := leadAlone(t, testSettings())
	f.append(f.batch(3))
	for range 300 {
		require.NoError(t, f.p.Close(true))
		f.open(locallog.Config{LogStart: cluster.NoOffset, CleanStop: true})
		require.Zero(t, f.p.HighWatermark(), "no checkpoint says how far it was")
		looking, result := make(chan struct{}), make(chan error)
		go func() {
			close(looking)
			for {
				got, err := f.p.ListOffset(context.Background(), ListOffsetRequest{Timestamp: LatestTimestamp, CurrentLeaderEpoch: cluster.NoLeaderEpoch, Replica: cluster.NoBroker})
				if err == nil && got.Offset == 3 {
					result <- nil
					return
				}
				if f.p.role.Load().leading && f.p.HighWatermark() < 3 {
					result <- errors.New("it leads below its end")
					return
				}
			}
		}()
		<-looking
		f.lead(2)
		require.NoError(t, <-result)
	}
}
