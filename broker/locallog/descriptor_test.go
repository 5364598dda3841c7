package locallog

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
)

// TestNoDescriptorAtEveryCall makes every call that needs a file descriptor find
// none, one in each run: an append, a roll or a flush is refused, and the log
// goes on.
func TestNoDescriptorAtEveryCall(t *testing.T) {
	needs := []disk.OpKind{disk.OpCreate, disk.OpOpen, disk.OpOpenReadOnly, disk.OpSyncDir, disk.OpList}
	hits := 0
	for i := int64(0); ; i++ {
		crash := disk.NewCrash(uint64(i))
		fs := disk.NewFault(crash, nil)
		cfg := config(fs)
		l, err := Open(cfg)
		require.NoError(t, err)
		l.AssignEpoch(1)
		seen, hit := int64(0), false
		fs.SetInjector(func(op disk.Op) error {
			if !slices.Contains(needs, op.Kind) {
				return nil
			}
			if seen++; seen == i+1 {
				hit = true
				return fmt.Errorf("%s of %s: %w", op.Kind, op.Name, syscall.EMFILE)
			}
			return nil
		})
		run := &errorRun{t: t, cfg: cfg, log: l, where: fmt.Sprint("without a descriptor at call ", i)}
		for range 20 {
			run.append(3)
		}
		run.flush()
		for range 20 {
			run.append(3)
		}
		run.do("roll", func() error { _, err := run.log.Roll(); return err })
		run.flush()
		fs.SetInjector(nil)
		require.Same(t, l, run.log, "%s: the log went offline", run.where)
		run.check()
		require.NoError(t, run.log.Close(true), run.where)
		if !hit {
			break
		}
		hits++
	}
	require.Greater(t, hits, 10)
}
