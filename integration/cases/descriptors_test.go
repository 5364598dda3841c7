package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sys/unix"

	"strandline/integration/kit"
)

// OP-01 with file descriptors in place of disk space: what needs one is refused
// in a way that clients retry, everything else goes on, and nothing stays
// offline afterwards.
func TestOutOfFileDescriptors(t *testing.T) {
	s := own(t, nil)
	c := kit.Dial(t, s.Addr)
	topic, id := create(t, c, 1, "segment.bytes=1048576")
	big := strings.Repeat("x", 400_000)
	for range 2 {
		same(t, nil, send(c, 9, topic, id, 0, records(big)).ErrorCode)
	}
	var before unix.Rlimit
	require.NoError(t, unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, nil, &before))
	limit := func(n uint64) {
		t.Helper()
		require.NoError(t, unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: before.Max}, nil))
	}
	limit(3)
	for range 3 {
		same(t, kerr.KafkaStorageError, send(c, 9, topic, id, 0, records(big)).ErrorCode, "it needs a new segment")
	}
	got := send(c, 9, topic, id, 0, records("fits"))
	same(t, nil, got.ErrorCode, "this one needs none")
	require.EqualValues(t, 2, got.BaseOffset, "what was refused has left nothing")
	require.EqualValues(t, 3, end(t, c, topic, 0))
	same(t, nil, fetchOne(c, topic, 0, 2).ErrorCode)
	late := fresh("late")
	same(t, nil, createTopics(c, 7, false, newTopic(late, 3))[0].ErrorCode)
	limit(before.Cur)
	same(t, nil, send(c, 9, topic, id, 0, records(big)).ErrorCode, "at once")
	for p := range int32(3) {
		kit.Eventually(t, 10*time.Second, "a topic that was created meanwhile comes up", func() bool {
			return send(c, 9, late, id, p, records("x")).ErrorCode == 0
		})
	}
	require.NotContains(t, s.Log(), "log is offline")
	s.Restart(true)
	c = kit.Dial(t, s.Addr)
	require.EqualValues(t, 4, end(t, c, topic, 0))
	for offset, want := range []string{big, big, "fits", big} {
		require.Equal(t, want, values(t, fetchOne(c, topic, 0, int64(offset)).RecordBatches)[0])
	}
}
