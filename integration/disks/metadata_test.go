package disks

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"strandline/integration/kit"
)

// TestMetadataDirectoryFails: without its metadata a broker can do nothing, and
// whoever watches it is to start it again. It ends, although there are parts of it
// that the failure keeps from ending; with the disk good again everything is
// there.
func TestMetadataDirectoryFails(t *testing.T) {
	bad := kit.NewDisk(t, 64*mib)
	b := start(t, t.TempDir(), map[string]string{"metadata.log.dir": filepath.Join(bad.Path, "metadata"), "log.remote.storage.enable": "false"})
	b.create("t", 1, nil)
	b.mustWrite("t", 0, 5, 1000)
	offsets := kadm.Offsets{}
	offsets.AddOffset("t", 0, 3, -1)
	_, err := b.admin.CommitOffsets(b.ctx(), "g", offsets)
	require.NoError(t, err)

	bad.Break()
	offsets.AddOffset("t", 0, 4, -1)
	_, err = b.admin.CommitOffsets(b.ctx(), "g", offsets)
	require.NoError(t, err, "the log has it; the view of it fails")
	require.Equal(t, 1, b.Wait(20*time.Second))
	require.Contains(t, b.Log(), "metadata store cannot go on")
	bad.Repair()
	b.MustStart()
	b.connect()
	b.readBack("t", 0, 0)
	got, err := b.admin.FetchOffsets(b.ctx(), "g")
	require.NoError(t, err)
	o, ok := got.Lookup("t", 0)
	require.True(t, ok)
	require.EqualValues(t, 4, o.At)
	require.Zero(t, b.Stop())
}
