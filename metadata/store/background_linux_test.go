package store_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"strandline/metadata/disk"
	"strandline/metadata/store"
)

// priority is that of the thread that runs this: 20 - its niceness.
func priority(t *testing.T) int {
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	require.NoError(t, err)
	return prio
}

// niceThreads is how many threads of the process have a lower priority.
func niceThreads(t *testing.T, usual int) int {
	tasks, err := filepath.Glob("/proc/self/task/*")
	require.NoError(t, err)
	n := 0
	for _, task := range tasks {
		id, err := strconv.Atoi(filepath.Base(task))
		require.NoError(t, err)
		// A thread may have ended meanwhile.
		if prio, err := unix.Getpriority(unix.PRIO_PROCESS, id); err == nil && prio < usual {
			n++
		}
	}
	return n
}

// TestBackgroundIsTheEnginesOwn: flushes and compactions give way, whoever uses the
// database does not.
func TestBackgroundIsTheEnginesOwn(t *testing.T) {
	dir, usual := t.TempDir(), priority(t)
	for round := range 3 {
		db, err := store.Open(store.Config{FS: disk.OS(), Dir: dir, MemTableBytes: 64 << 10, Background: true})
		require.NoError(t, err)
		nicer := 0
		for i := range 300 {
			for k := range 20 {
				commit(t, db, store.NoSync, fmt.Sprintf("%d-%d-%d", i%7, k, round), strings.Repeat("v", 200))
			}
			if i%50 == 0 {
				require.NoError(t, db.Flush())
				bulk(t, db, "1-1", strings.Repeat("v", 1<<20), "1-2", "")
			}
			nicer = max(nicer, niceThreads(t, usual))
			require.Equal(t, usual, priority(t), "the thread of who writes")
		}
		require.NoError(t, db.Close())
		require.Positive(t, nicer, "nothing was in the background")
	}
}
