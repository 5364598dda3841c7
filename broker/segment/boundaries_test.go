package segment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
)

func TestBoundariesForgetTheOldestFirst(t *testing.T) {
	var r boundaries
	_, ok := r.find(0)
	require.False(t, ok)
	for i := range 3*boundariesKept + 5 {
		r.add(cluster.Offset(10*i), int64(100*i))
		for j := range i + 2 {
			end, ok := r.find(cluster.Offset(10 * j))
			require.Equal(t, j <= i && j > i-boundariesKept, ok, "%d after %d", j, i)
			if ok {
				require.EqualValues(t, 100*j, end)
			}
		}
	}
	require.Len(t, r.ring, boundariesKept)
}

// TestResidentIsWhatWasWrittenLast: the newest bytes count as resident, as far
// back as marks are kept, and nothing that they do not cover.
func TestResidentIsWhatWasWrittenLast(t *testing.T) {
	const batchBytes = writeMarkBytes / 4
	s, err := Create(testWhere(t), 0, time.UnixMilli(1))
	require.NoError(t, err)
	require.False(t, s.Resident(0, 0), "nothing was written")
	const appends = 4 * (writeMarksKept + 3)
	for i := range int64(appends) {
		// Another segment is written as much in between.
		s.mu.marks.add(i*batchBytes, 2*i*batchBytes)
	}
	require.Len(t, s.mu.marks.marks, writeMarksKept)
	const oldest = int64(appends/4-writeMarksKept) * writeMarkBytes
	require.False(t, s.Resident(oldest-1, 0), "no mark tells")
	require.True(t, s.Resident(oldest, 2*oldest))
	require.False(t, s.Resident(oldest, 2*oldest+1), "written before")
	last := int64(appends-1) * batchBytes
	for _, position := range []int64{oldest, oldest + 1, oldest + writeMarkBytes - 1, oldest + writeMarkBytes, last, last + 1<<30} {
		// What lies behind a mark was written at it or later.
		at := min(position/writeMarkBytes*writeMarkBytes, last/writeMarkBytes*writeMarkBytes)
		require.True(t, s.Resident(position, 2*at), "position %d", position)
		require.False(t, s.Resident(position, 2*at+1), "position %d", position)
	}
}

// TestCommitMarksWhereItWrote: Resident of a segment that is written, by the
// count of bytes that the writer keeps.
func TestCommitMarksWhereItWrote(t *testing.T) {
	s, err := Create(testWhere(t), 0, time.UnixMilli(1))
	require.NoError(t, err)
	b := batchAtOffset(0, 3, 10)
	require.NoError(t, s.Write(b))
	s.Commit(b, testInterval, time.UnixMilli(2), 70)
	require.True(t, s.Resident(0, 70))
	require.True(t, s.Resident(s.Bytes(), 70))
	require.False(t, s.Resident(0, 71))
}
