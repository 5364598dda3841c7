package partition

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// TestDecidedRecordsAreReadWhateverTheRole follows a log of several segments as its
// leader and as a follower.
func TestDecidedRecordsAreReadWhateverTheRole(t *testing.T) {
	settings := testSettings()
	settings.SegmentBytes, settings.CleanupPolicy = 300, config.CleanupDelete
	f := leadAlone(t, settings)
	for range 10 {
		_, commit, err := f.p.Append(AppendRequest{Records: f.batch(2), CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1, Origin: FromCoordinator})
		require.NoError(t, err)
		require.Nil(t, commit)
	}
	st := f.p.LogState()
	require.Equal(t, LogState{
		LeaderEpoch: 1, Leading: true, HighWatermark: 20, LogEndOffset: 20, MaxMessageBytes: int(settings.MaxMessageBytes),
	}, st)
	offsets := func(b []byte) []cluster.Offset {
		var out []cluster.Offset
		for len(b) > 0 {
			batch, rest, err := recordbatch.First(b)
			require.NoError(t, err)
			out, b = append(out, batch.BaseOffset()), rest
		}
		return out
	}
	for _, role := range []string{"leader", "follower"} {
		if role == "follower" {
			require.NoError(t, f.p.Become(context.Background(), Leadership{Leader: 2, LeaderEpoch: 2, Replicas: []cluster.BrokerID{1, 2}}))
			st := f.p.LogState()
			require.False(t, st.Leading)
			require.EqualValues(t, 2, st.LeaderEpoch)
			_, err := f.p.Read(ReadRequest{Offset: 0, MaxBytes: 1, Replica: cluster.NoBroker, CurrentLeaderEpoch: cluster.NoLeaderEpoch, LastFetchedEpoch: cluster.NoLeaderEpoch})
			require.ErrorIs(t, err, ErrNotLeader)
		}
		kept := []byte("kept")
		all, err := f.p.ReadDecided(kept, 0, 1<<20)
		require.NoError(t, err)
		require.Equal(t, "kept", string(all[:4]))
		require.Equal(t, []cluster.Offset{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}, offsets(all[4:]))
		some, err := f.p.ReadDecided(nil, 5, 1)
		require.NoError(t, err)
		require.Equal(t, []cluster.Offset{4}, offsets(some), "a whole batch, the one that reaches past the offset")
		none, err := f.p.ReadDecided(nil, 20, 1<<20)
		require.NoError(t, err)
		require.Empty(t, none)
		_, err = f.p.ReadDecided(nil, 21, 1<<20)
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
	}
	f.p.TakeOffline(errors.New("by the test"))
	_, err := f.p.ReadDecided(nil, 0, 1)
	require.ErrorIs(t, err, ErrStorage)
	st = f.p.LogState()
	require.False(t, st.Leading)
	require.ErrorIs(t, st.Offline, ErrStorage)
}

// TestNothingUndecidedIsRead keeps records above the high watermark, where a
// replica is missing and where the disk has them not yet.
func TestNothingUndecidedIsRead(t *testing.T) {
	f := newFixture(t, testSettings())
	require.NoError(t, f.p.Become(context.Background(), Leadership{
		Leader: self, LeaderEpoch: 3, Replicas: []cluster.BrokerID{self, 2}, ISR: []cluster.BrokerID{self, 2},
	}))
	_, commit, err := f.p.Append(AppendRequest{Records: f.batch(3), CurrentLeaderEpoch: 3, RequiredAcks: -1, Origin: FromCoordinator})
	require.NoError(t, err)
	require.NotNil(t, commit)
	b, err := f.p.ReadDecided(nil, 0, 1<<20)
	require.NoError(t, err)
	require.Empty(t, b)
	_, err = f.p.Read(ReadRequest{Offset: 3, MaxBytes: 1, Replica: 2, CurrentLeaderEpoch: 3, LastFetchedEpoch: cluster.NoLeaderEpoch})
	require.NoError(t, err)
	<-commit.Done()
	b, err = f.p.ReadDecided(nil, 0, 1<<20)
	require.NoError(t, err)
	require.NotEmpty(t, b)
}

// TestEpochsAreThoseOfRecords asks for the leader epoch of each record, and of
// offsets that have none.
func TestEpochsAreThoseOfRecords(t *testing.T) {
	f := leadAlone(t, testSettings())
	for epoch := cluster.LeaderEpoch(2); epoch <= 4; epoch += 2 {
		f.lead(epoch)
		_, _, err := f.p.Append(AppendRequest{Records: f.batch(2), CurrentLeaderEpoch: epoch, RequiredAcks: 1, Origin: FromCoordinator})
		require.NoError(t, err)
	}
	for o, want := range map[cluster.Offset]cluster.LeaderEpoch{0: 2, 1: 2, 2: 4, 3: 4} {
		epoch, ok := f.p.EpochAt(o)
		require.True(t, ok)
		require.Equal(t, want, epoch)
	}
	_, err := f.p.DeleteRecords(context.Background(), 1)
	require.NoError(t, err)
	for _, o := range []cluster.Offset{-1, 0, 4, 5} {
		epoch, ok := f.p.EpochAt(o)
		require.False(t, ok)
		require.Equal(t, cluster.NoLeaderEpoch, epoch)
	}
}
