package partition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/metadata/cluster"
)

// Once for each sealed segment, and only when the archive may have it.
func TestSealedSegmentsAreOffered(t *testing.T) {
	settings := testSettings()
	settings.Tiered = true
	f := newFixture(t, settings)
	require.NoError(t, f.p.Close(true))
	offers := make(chan struct{}, 10)
	f.config.OnOffer = func() { offers <- struct{}{} }
	f.open(locallog.Config{LogStart: cluster.NoOffset, CleanStop: true})
	f.lead(1)
	for i := range 3 {
		f.append(f.batch(2))
		require.NoError(t, f.p.Roll())
		<-offers
		offered, _ := f.p.Archivable(0)
		require.Len(t, offered, i+1)
	}
	f.append(f.batch(1))
	f.p.FlushSoon()
	require.NoError(t, f.p.Close(true)) // waits for the flusher
	require.Empty(t, offers)
}
