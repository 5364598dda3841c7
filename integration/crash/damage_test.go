package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

// damages are what can happen to a file.
var damages = map[string]func(t *testing.T, r *rand.Rand, name string){
	"flipped": func(t *testing.T, r *rand.Rand, name string) {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		for range min(len(data), 1+len(data)/2000) {
			data[r.IntN(len(data))] ^= 1 << r.IntN(8)
		}
		require.NoError(t, os.WriteFile(name, data, 0o600))
	},
	"removed": func(t *testing.T, _ *rand.Rand, name string) { require.NoError(t, os.Remove(name)) },
	"cut": func(t *testing.T, r *rand.Rand, name string) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(name, r.Int64N(info.Size()+1)))
	},
	"empty": func(t *testing.T, _ *rand.Rand, name string) { require.NoError(t, os.Truncate(name, 0)) },
	"copied": func(t *testing.T, _ *rand.Rand, name string) {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, suffix := range []string{".cleaned", ".swap", ".deleted", ".tmp"} {
			require.NoError(t, os.WriteFile(name+suffix, data, 0o600))
		}
	},
}

// derived are the files that can be made again from the logs. A checkpoint of
// compaction that is gone says that there was none, so that it is only damaged.
var derived = map[string][]string{
	"metadata/views/*": {"flipped", "removed", "cut", "empty"}, "metadata/keyindex/*": {"flipped", "removed", "cut", "empty"},
	"logs/*/*.index": {"flipped", "removed", "cut", "empty"}, "logs/*/*.timeindex": {"flipped", "removed", "cut", "empty"},
	"logs/*/*.snapshot": {"flipped", "removed", "cut", "empty"}, "logs/*/leader-epoch-checkpoint": {"removed", "cut", "empty"},
	"logs/*/compaction-checkpoint": {"cut", "empty"}, "logs/*-checkpoint": {"removed", "cut", "empty"},
	"logs/*/*.log": {"copied"},
}

// kept is a compacted topic and groups that come and go, and what they are to be.
type kept struct {
	t       *testing.T
	r       *rand.Rand
	addr    string
	n       int
	values  map[string]string
	offsets map[committed]int64
}

const keptTopic = "kept"

// work writes, commits and deletes.
func (k *kept) work(rounds int) {
	k.t.Helper()
	cl := groupClient(k.t, k.addr, kgo.DefaultProduceTopic(keptTopic))
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for range rounds {
		var records []*kgo.Record
		for range 5 {
			k.n++
			r := &kgo.Record{Key: fmt.Append(nil, "key-", k.r.IntN(200))}
			if k.r.IntN(5) > 0 {
				r.Value = fmt.Append(nil, "value-", k.n)
			}
			records = append(records, r)
		}
		require.NoError(k.t, cl.ProduceSync(k.t.Context(), records...).FirstErr())
		for _, r := range records {
			if k.values[string(r.Key)] = string(r.Value); r.Value == nil {
				delete(k.values, string(r.Key))
			}
		}
		group := fmt.Sprint("group-", k.r.IntN(20))
		if k.r.IntN(10) == 0 {
			_, err := adm.DeleteGroup(k.t.Context(), group)
			require.True(k.t, err == nil || k.none(group), "%s: %v", group, err)
			for at := range k.offsets {
				if at.group == group {
					delete(k.offsets, at)
				}
			}
			continue
		}
		at := committed{group, keptTopic, int32(k.r.IntN(4))}
		offsets := kadm.Offsets{}
		offsets.AddOffset(at.topic, at.partition, int64(k.n), -1)
		require.NoError(k.t, adm.CommitAllOffsets(k.t.Context(), at.group, offsets))
		k.offsets[at] = int64(k.n)
	}
}

func (k *kept) none(group string) bool {
	for at := range k.offsets {
		if at.group == group {
			return false
		}
	}
	return true
}

// check compares all offsets, and the topic from its start.
func (k *kept) check(when string) {
	k.t.Helper()
	cl := groupClient(k.t, k.addr, kgo.ConsumeTopics(keptTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	defer cl.Close()
	adm := kadm.NewClient(cl)
	got := map[committed]int64{}
	for n := range 20 {
		group := fmt.Sprint("group-", n)
		offsets, err := adm.FetchOffsets(k.t.Context(), group)
		require.NoError(k.t, err, when)
		offsets.Each(func(o kadm.OffsetResponse) {
			require.NoError(k.t, o.Err, when)
			if o.At >= 0 {
				got[committed{group, o.Topic, o.Partition}] = o.At
			}
		})
	}
	require.Equal(k.t, k.offsets, got, when)
	ends, err := adm.ListEndOffsets(k.t.Context(), keptTopic)
	require.NoError(k.t, err, when)
	values, left := map[string]string{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		require.NoError(k.t, o.Err, when)
		left[o.Partition] = o.Offset
	})
	for deadline := time.Now().Add(20 * time.Second); len(left) > 0; {
		require.True(k.t, time.Now().Before(deadline), "%s: what is left to read: %v", when, left)
		cl.PollFetches(k.t.Context()).EachRecord(func(r *kgo.Record) {
			if values[string(r.Key)] = string(r.Value); r.Value == nil {
				delete(values, string(r.Key))
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	require.Equal(k.t, k.values, values, when)
}

// TestDamagedFilesAreMadeAgain damages, between runs of a server that compacts all
// the time, what follows from the logs: the views, the key index, indexes and
// checkpoints; and leaves files about that look like those of a rewrite that was cut
// off. Nothing is lost, nothing that was deleted comes back, and the server starts.
func TestDamagedFilesAreMadeAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	r := rand.New(rand.NewPCG(seedOf(t), 8))
	k := &kept{t: t, r: r, addr: fixedPort(t), values: map[string]string{}, offsets: map[committed]int64{}}
	s := kit.New(t, t.TempDir(), map[string]string{
		"listeners": "PLAINTEXT://" + k.addr, "remote.log.storage.system.enable": "false",
		"offsets.topic.num.partitions": "2", "offsets.topic.segment.bytes": "10000",
		"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.delete.retention.ms": "100", "log.segment.delete.delay.ms": "0",
	})
	s.MustStart()
	cl := groupClient(t, k.addr)
	_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 4, 1, map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact"), "internal.segment.bytes": kadm.StringPtr("5000"), "delete.retention.ms": kadm.StringPtr("100"),
	}, keptTopic)
	cl.Close()
	require.NoError(t, err)
	k.work(150)
	for pattern, hows := range derived {
		for i, n := range r.Perm(len(hows)) {
			if i > 0 && !kit.Long() {
				break
			}
			how, kill := hows[n], r.IntN(2) == 0
			if kill {
				s.Kill()
			} else {
				require.Zero(t, s.Stop())
			}
			files, err := filepath.Glob(filepath.Join(s.Dir, pattern))
			require.NoError(t, err)
			done := 0
			for _, name := range files {
				if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && r.IntN(2) == 0 {
					damages[how](t, r, name)
					done++
				}
			}
			when := fmt.Sprintf("%d of %s %s, kill %v", done, pattern, how, kill)
			s.Spawn()
			require.NoError(t, s.AwaitReady(20*time.Second), "%s\n%s", when, s.Log())
			k.check(when)
			k.work(20)
			k.check(when + ", later")
			require.False(t, bytes.Contains([]byte(s.Log()), []byte("not compacted any more")), "%s\n%s", when, s.Log())
		}
	}
}
