package cleaner

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/disk"
)

// TestErrorAtEveryCall makes one call of a pass on the log's files fail, each in
// turn: the pass fails or not, the log goes on or is opened again, and the next
// pass leaves what one without an error leaves, and no file of a rewrite.
func TestErrorAtEveryCall(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE} {
		offline := 0
		for i := int64(0); ; i++ {
			hit, gone := oneError(t, cause, i)
			if gone {
				offline++
			}
			if !hit {
				require.Greater(t, i, int64(50), "the pass makes that many calls")
				break
			}
		}
		require.Positive(t, offline)
	}
}

func oneError(t *testing.T, cause error, at int64) (hit, gone bool) {
	t.Helper()
	fs := disk.NewFault(disk.NewCrash(uint64(at)), nil)
	b := newBench(t, fs)
	want := map[string]string{}
	for i := range 40 {
		k, v := fmt.Sprint("key-", i%7), fmt.Sprint("value-", i)
		if i%11 == 0 {
			v = "-"
		}
		b.keyed(recordbatch.Options{Codec: recordbatch.Codec(i % 5)}, k, v, k+"x", "once "+v)
		want[k], want[k+"x"] = v, "once "+v
		if v == "-" {
			delete(want, k)
		}
		if i%6 == 5 {
			b.seal()
		}
	}
	b.seal()
	calls := int64(0)
	fs.SetInjector(func(op disk.Op) error {
		if !strings.HasPrefix(op.Name, logDir) {
			return nil // the index is a view
		}
		if calls++; calls-1 != at {
			return nil
		}
		hit = true
		return fmt.Errorf("%s of %s: %w", op.Kind, op.Name, cause)
	})
	_, err := b.c.Compact(context.Background(), b, limits())
	fs.SetInjector(nil)
	if !hit {
		require.NoError(t, err)
	}
	where := fmt.Sprintf("%v at call %d", cause, at)
	if gone = b.log.Err() != nil; gone || at%3 == 0 {
		b.close(false)
		require.NoError(t, b.open(), where)
		b.requireNoStrays(where)
	}
	require.Equal(t, want, fold(recordsOf(t, b.batches(0))), where)
	b.keyed(recordbatch.Options{}, "key-0", "the end")
	want["key-0"] = "the end"
	b.seal()
	b.compact(limits())
	left := recordsOf(t, b.batches(0))
	require.Equal(t, want, fold(left), where)
	require.LessOrEqual(t, len(left), len(want)+4, "%s: all but tombstones is compacted: %v", where, values(left))
	b.close(true)
	require.NoError(t, b.open(), where)
	b.requireNoStrays(where)
	require.Equal(t, left, recordsOf(t, b.batches(0)), where)
	b.close(true)
	return hit, gone
}
