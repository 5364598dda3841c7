package tiercases

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"strandline/integration/kit"
)

// settled is longer than deletions wait for a process that was killed.
const settled = 20 * time.Second

// startCopy starts a server on a copy of a disk.
func startCopy(t *testing.T, disk string, set map[string]string) *broker {
	t.Helper()
	dir := copyDisk(t, disk)
	c := &broker{t: t, Server: kit.New(t, dir, set)}
	c.MustStart()
	c.connect()
	t.Cleanup(func() { c.cl.Close() })
	return c
}

func copyDisk(t *testing.T, disk string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(disk)))
	return dir
}

// objects counts the segment objects of a topic in a directory tier.
func (b *broker) objects(store, topicID string) (n int) {
	b.t.Helper()
	err := filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".seg") && strings.Contains(path, "/"+topicID+"/") {
			n++
		}
		if os.IsNotExist(err) {
			return nil // deleted meanwhile
		}
		return err
	})
	require.NoError(b.t, err)
	return n
}

// awaitDeletes makes and deletes a topic, and waits until its objects are gone:
// time enough for another broker to delete, too.
func (b *broker) awaitDeletes(store, topic string) {
	b.t.Helper()
	b.writeSmall(topic)
	id := b.id(topic)
	require.NotZero(b.t, b.objects(store, id))
	b.remove(topic)
	kit.Eventually(b.t, settled, "the objects of "+topic+" are gone", func() bool { return b.objects(store, id) == 0 })
}

// errorsOfCopies counts the ERROR lines about copies.
func (b *broker) errorsOfCopies() (n int) {
	for line := range strings.Lines(b.Log()) {
		if strings.Contains(line, "ERROR") && strings.Contains(line, "a copy of this broker's disks seems to run") {
			n++
		}
	}
	return n
}

func (b *broker) requireRefused() {
	b.t.Helper()
	kit.Eventually(b.t, settled, "the copy says what it is", func() bool {
		_, body := b.Get("/readyz")
		return b.errorsOfCopies() == 1 && strings.Contains(body, "degraded")
	})
}

// dropRecords deletes the records of partition 0 below an offset.
func (b *broker) dropRecords(topic string, below int64) {
	b.t.Helper()
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: topic, At: below})
	r, err := b.admin.DeleteRecords(context.Background(), o)
	require.NoError(b.t, err)
	require.NoError(b.t, r.Error())
}

// writeSmall makes a topic whose first segments are only in the store.
func (b *broker) writeSmall(topic string) {
	b.t.Helper()
	b.create(topic, 1, small(11_200))
	b.write(topic, 0, 0, 50, 1000, time.Time{})
	b.tiered(topic, 0, 3)
	b.localOnlyTail(topic, 0)
}

// A copy of a broker's disk that is started beside it deletes nothing that the
// other one reads, and says once what is wrong.
func TestCopyBesideItsOriginalDeletesNothing(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(b *broker){
		"of a stopped broker": func(b *broker) { require.Zero(b.t, b.Stop()) },
		"of a killed broker":  func(b *broker) { b.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := t.TempDir()
			set := func() map[string]string { return fast(map[string]string{"remote.store.url": "file://" + store}) }
			b := start(t, set())
			b.writeSmall("shared")
			b.writeSmall("shorter")
			stop(b)
			disk := copyDisk(t, b.Dir)
			b.MustStart()
			b.connect()
			b.awaitDeletes(store, "before")
			c := startCopy(t, disk, set())
			c.requireRefused()
			shared, shorter := b.objects(store, b.id("shared")), b.objects(store, b.id("shorter"))
			c.remove("shared")
			c.dropRecords("shorter", 45)
			b.awaitDeletes(store, "between")
			b.awaitDeletes(store, "after")
			require.Equal(t, shared, b.objects(store, b.id("shared")))
			require.Equal(t, shorter, b.objects(store, b.id("shorter")))
			b.check("shared", 0, 0, 50, 1000)
			b.check("shorter", 0, 0, 50, 1000)
			require.Equal(t, 1, c.errorsOfCopies(), c.Log())
			require.Zero(t, b.errorsOfCopies(), b.Log())
		})
	}
}

// A copy of the disk of a running broker, as a snapshot of its volume is, finds
// out that the other one runs from its renewals.
func TestSnapshotOfARunningBrokerDeletesNothing(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	set := func() map[string]string { return fast(map[string]string{"remote.store.url": "file://" + store}) }
	b := start(t, set())
	b.writeSmall("shared")
	b.Signal(syscall.SIGSTOP) // as a snapshot: nothing changes while it is taken
	disk := copyDisk(t, b.Dir)
	b.Signal(syscall.SIGCONT)
	c := startCopy(t, disk, set())
	c.remove("shared")
	c.requireRefused()
	b.awaitDeletes(store, "between")
	b.awaitDeletes(store, "after")
	b.check("shared", 0, 0, 50, 1000)
	require.Equal(t, 1, c.errorsOfCopies(), c.Log())
	require.Zero(t, b.errorsOfCopies(), b.Log())
}

// Who was started on the store last, after the other one had stopped, has it; the
// other one refuses at its next start, until a person says that it is the one.
func TestCopyTakesTheStoreOfAStoppedOriginal(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	set := func() map[string]string { return fast(map[string]string{"remote.store.url": "file://" + store}) }
	b := start(t, set())
	b.writeSmall("shared")
	require.Zero(t, b.Stop())
	c := startCopy(t, b.Dir, set())
	c.awaitDeletes(store, "of-the-copy")
	b.MustStart()
	b.connect()
	b.requireRefused()
	b.check("shared", 0, 0, 50, 1000) // reads go on
	b.remove("shared")
	c.awaitDeletes(store, "later-of-the-copy")
	c.check("shared", 0, 0, 50, 1000)
	require.Zero(t, c.errorsOfCopies(), c.Log())
	// The remedy of the ERROR line.
	require.Zero(t, c.Stop())
	require.Zero(t, b.Stop())
	require.NoError(t, os.Remove(filepath.Join(b.Dir, "metadata", "remote-claim.json")))
	b.MustStart()
	b.connect()
	b.awaitDeletes(store, "of-the-original")
}

// A broker that was killed deletes again when its lease has ended, one that was
// stopped at once.
func TestDeletionsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		store := t.TempDir()
		b := start(t, fast(map[string]string{"remote.store.url": "file://" + store}))
		b.writeSmall("removed")
		id := b.id("removed")
		b.again(kill)
		b.remove("removed")
		kit.Eventually(t, settled, "the objects are gone", func() bool { return b.objects(store, id) == 0 })
		require.Equal(t, kill, strings.Contains(b.Log(), "has not said that it stopped"), b.Log())
		require.Zero(t, b.errorsOfCopies(), b.Log())
	}
}
