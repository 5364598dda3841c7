package tiercases

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// TestFaultyStore shares one MinIO; each case has a prefix, a proxy and a server
// of its own.
func TestFaultyStore(t *testing.T) {
	m := kit.StartMinIO(t, "strandline")
	for name, f := range map[string]func(*faults){
		"FailedUploadsAreNoRemoteBytes":    failedUploads,
		"DeletedTopicLeavesNoObjects":      deletedTopic,
		"SlowReadsMakeProgress":            slowReads,
		"AcknowledgedRecordsAreReadable":   blockedUploads,
		"NoHoleWhileTheStoreIsDown":        storeDown,
		"EveryPartitionReturnsToItsLimit":  unevenLoad,
		"SlowDownIsWaitedOut":              slowDown,
		"CorruptObjectIsReportedAlone":     corruptObject,
		"EmptiedBucketLosesNothingElse":    emptiedBucket,
		"RestartWhileTheStoreIsDown":       restartDuringOutage,
		"MissingObjectIsReportedAndSpared": missingObject,
		"LookupsCostFewRequests":           cheapLookups,
		"GlitchesOfReadsPass":              glitches,
		"DeletedBeforeItWasUploaded":       deletedBeforeUpload,
		"RefusedForAWhile":                 refusedForAWhile,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(newFaults(t, m, strings.ToLower(name)))
		})
	}
}

type faults struct {
	*broker
	m      *kit.MinIO
	proxy  *kit.Proxy
	prefix string
}

func newFaults(t *testing.T, m *kit.MinIO, prefix string) *faults {
	proxy := kit.StartProxy(t, m.Addr)
	b := start(t, fast(m.Properties(prefix), map[string]string{"remote.store.endpoint": "http://" + proxy.Addr, "remote.upload.deadline.ms": "8000"}))
	return &faults{broker: b, m: m, proxy: proxy, prefix: prefix}
}

func (f *faults) keys(under string) []string { return f.m.Keys(path.Join(f.prefix, under) + "/") }

// agree waits until bucket and catalog name the same segments.
func (f *faults) agree() {
	f.t.Helper()
	kit.Eventually(f.t, 30*time.Second, "bucket and catalog agree", func() bool {
		return slices.Equal(segments(f.keys("")), f.liveKeys())
	})
}

func isPut(r *http.Request) bool { return r.Method == http.MethodPut || r.Method == http.MethodPost }

func isSegment(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, ".seg") }

// TI-13
func failedUploads(f *faults) {
	const size, n = 1000, 100
	var failed atomic.Int64
	f.proxy.Set(func(r *http.Request) kit.Fault {
		if !isPut(r) || !strings.Contains(r.URL.Path, fmt.Sprintf("/%020d-", 30)) || failed.Load() >= 30 {
			return kit.Fault{}
		}
		switch failed.Add(1) % 3 {
		case 0:
			return kit.Fault{Status: http.StatusInternalServerError}
		case 1:
			return kit.Fault{LoseAnswer: true}
		}
		return kit.Fault{Drop: true}
	})
	f.create("quota", 1, small(11_200, "retention.bytes", "224000", "local.retention.bytes", "1"))
	f.write("quota", 0, 0, n, size, time.Time{})
	kit.Eventually(f.t, 60*time.Second, "the uploads of one segment fail and then go through", func() bool {
		require.Zero(f.t, f.offset("quota", 0, -2))
		p := f.partition("quota", 0)
		require.LessOrEqual(f.t, p.RemoteSegments, int64(10))
		return p.PendingSegments == 0 && p.RemoteSegments >= 8
	})
	require.GreaterOrEqual(f.t, failed.Load(), int64(2))
	require.Zero(f.t, f.offset("quota", 0, -2))
	f.agree()
	copies := 0
	for _, k := range segments(f.keys("")) {
		if strings.Contains(k, fmt.Sprintf("/%020d-", 30)) {
			copies++
		}
	}
	require.Equal(f.t, 1, copies)
	f.check("quota", 0, 0, n, size)
}

// TI-15
func deletedTopic(f *faults) {
	const size = 1000
	gone := func(id string) func() bool {
		return func() bool {
			for _, k := range f.keys("") {
				if strings.Contains(k, id) {
					return false
				}
			}
			return true
		}
	}
	each := int64(250)
	if kit.Long() {
		each = 11_000 // more objects than one call lists or deletes
	}
	f.create("quiet", 2, small(11_200))
	for p := range int32(2) {
		f.write("quiet", p, 0, each, size, time.Time{})
		f.tiered("quiet", p, each/10-5)
	}
	quiet := f.id("quiet")
	require.False(f.t, gone(quiet)())
	f.remove("quiet")
	kit.Eventually(f.t, 30*time.Second, "no object of the topic is left", gone(quiet))

	// During uploads, with the store down, and across a restart.
	held := make(chan struct{}, 100)
	f.proxy.Set(func(r *http.Request) kit.Fault {
		if isPut(r) && isSegment(r) {
			held <- struct{}{}
			return kit.Fault{Delay: 500 * time.Millisecond}
		}
		return kit.Fault{}
	})
	f.create("busy", 2, small(11_200))
	for p := range int32(2) {
		f.write("busy", p, 0, 100, size, time.Time{})
	}
	busy := f.id("busy")
	<-held
	f.remove("busy")
	f.proxy.Set(func(*http.Request) kit.Fault { return kit.Fault{Drop: true} })
	kit.Eventually(f.t, 20*time.Second, "tier status says what keeps the deletion", func() bool {
		return len(f.status().DeletionErrors) > 0
	})
	require.Contains(f.t, strings.Join(f.status().DeletionErrors, " "), "busy")
	f.again(true)
	f.proxy.Set(nil)
	kit.Eventually(f.t, 60*time.Second, "no object of either topic is left", func() bool { return gone(busy)() && gone(quiet)() })
	kit.Eventually(f.t, 30*time.Second, "the deletion is forgotten", func() bool { return len(f.status().Deleting) == 0 })
}

// TI-19
func slowReads(f *faults) {
	const size = 1000
	f.create("slow", 2, small(11_200))
	for p := range int32(2) {
		f.write("slow", p, 0, 30, size, time.Time{})
		f.tiered("slow", p, 2)
		f.localOnlyTail("slow", p)
	}
	f.proxy.Set(func(r *http.Request) kit.Fault {
		if r.Method == http.MethodGet && isSegment(r) {
			return kit.Fault{Delay: 2 * time.Second}
		}
		return kit.Fault{}
	})
	var readers sync.WaitGroup
	for p := range int32(2) {
		readers.Go(func() { f.check("slow", p, 0, 30, size) })
	}
	readers.Wait()
	require.LessOrEqual(f.t, f.proxy.Gets(), int64(2*2*2), "no read was started over")
}

// TI-27
func blockedUploads(f *faults) {
	f.proxy.Set(func(*http.Request) kit.Fault { return kit.Fault{Drop: true} })
	f.create("acked", 1, small(11_200))
	for n := range int64(40) {
		f.write("acked", 0, n, 1, 1000, time.Time{})
		require.Equal(f.t, n+1, f.offset("acked", 0, -1))
	}
	c := kit.Dial(f.t, f.Addr)
	for n := range int64(40) {
		p := c.Call(kit.Fetch(12, "acked", 0, n, 1)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.Zero(f.t, p.ErrorCode)
		require.EqualValues(f.t, 40, p.HighWatermark)
		require.NotEmpty(f.t, p.RecordBatches)
	}
	f.check("acked", 0, 0, 40, 1000)
}

// TI-33
func storeDown(f *faults) {
	const size = 1000
	f.create("outage", 2, map[string]string{"internal.segment.bytes": "11200", "local.retention.ms": "1000", "file.delete.delay.ms": "100"})
	f.write("outage", 0, 0, 50, size, time.Time{})
	f.write("outage", 1, 0, 50, size, time.Time{})
	f.tiered("outage", 0, 3)
	n := int64(50)
	limit := time.Now().Add(5 * time.Second)
	if kit.Long() {
		limit = time.Now().Add(10 * time.Minute)
	}
	f.proxy.Set(func(r *http.Request) kit.Fault {
		switch {
		case isPut(r) && isSegment(r) && rand.IntN(2) == 0:
			return kit.Fault{LoseAnswer: true}
		case isPut(r):
			return kit.Fault{Status: http.StatusServiceUnavailable}
		}
		return kit.Fault{Drop: true}
	})
	pace := time.NewTicker(200 * time.Millisecond) // a segment a tick waits for the store
	defer pace.Stop()
	for ; time.Now().Before(limit); <-pace.C {
		f.write("outage", 0, n, 10, size, time.Time{})
		f.write("outage", 1, n, 10, size, time.Time{})
		n += 10
		for _, p := range f.status().Partitions {
			require.LessOrEqual(f.t, p.LocalStartOffset, p.RemoteEndOffset, "no hole")
		}
	}
	require.False(f.t, f.status().Store.OK)
	f.proxy.Set(nil)
	for p := range int32(2) {
		kit.Eventually(f.t, 5*time.Minute, "everything arrives", func() bool { return f.partition("outage", p).PendingSegments == 0 })
		f.check("outage", p, 0, n, size)
	}
	f.agree()
}

// TI-35
func unevenLoad(f *faults) {
	const size, partitions = 1000, 50
	run := 8 * time.Second
	if kit.Long() {
		run = 10 * time.Minute
	}
	f.proxy.Set(func(*http.Request) kit.Fault {
		switch rand.IntN(100) {
		case 0:
			return kit.Fault{Status: http.StatusInternalServerError}
		case 1:
			return kit.Fault{LoseAnswer: true}
		}
		return kit.Fault{}
	})
	f.create("uneven", partitions, small(11_200, "local.retention.bytes", "22400"))
	end := make([]int64, partitions)
	for limit, round := time.Now().Add(run), 0; time.Now().Before(limit); round++ {
		p := int32(rand.ExpFloat64()*8) % partitions
		f.write("uneven", p, end[p], 20, size, time.Time{})
		end[p] += 20
	}
	kit.Eventually(f.t, time.Minute, "every partition is under its local limit", func() bool {
		for _, p := range f.status().Partitions {
			if p.LocalBytes > 22400+2*11200 || p.PendingSegments > 0 {
				return false
			}
		}
		return true
	})
	f.proxy.Set(nil)
	for _, p := range []int32{0, 1, 7, 23} {
		f.check("uneven", p, 0, end[p], size)
	}
}

// OP-03
func slowDown(f *faults) {
	const size = 1000
	busy := kit.Fault{Status: http.StatusServiceUnavailable}
	f.proxy.Set(func(*http.Request) kit.Fault {
		if rand.IntN(10) < 3 {
			return busy
		}
		return kit.Fault{}
	})
	f.create("busy", 2, small(11_200, "retention.bytes", "60000"))
	f.create("kept", 1, small(11_200))
	write := func(from, n int64) {
		f.write("busy", 0, from, n, size, time.Time{})
		f.write("kept", 0, from, n, size, time.Time{})
	}
	write(0, 150)
	kit.Eventually(f.t, 30*time.Second, "with a third of all calls refused everything is done, slower", func() bool {
		return f.offset("busy", 0, -2) > 50 && f.partition("kept", 0).PendingSegments == 0
	})
	f.check("kept", 0, 0, 150, size)
	f.proxy.Set(func(*http.Request) kit.Fault { return busy })
	before := f.proxy.Puts() + f.proxy.Gets()
	limit := time.Now().Add(4 * time.Second)
	if kit.Long() {
		limit = time.Now().Add(time.Minute)
	}
	pace := time.NewTicker(100 * time.Millisecond) // a segment a tick waits for the store
	defer pace.Stop()
	n := int64(150)
	for ; time.Now().Before(limit); n += 10 {
		<-pace.C
		write(n, 10)
		f.check("kept", 0, f.offset("kept", 0, -1)-5, n+10, size) // local data
	}
	require.Less(f.t, f.proxy.Puts()+f.proxy.Gets()-before, int64(400), "calls back off")
	f.proxy.Set(nil)
	kit.Eventually(f.t, 30*time.Second, "recovery", func() bool {
		return f.status().Store.OK && f.partition("kept", 0).PendingSegments == 0 && f.partition("busy", 0).PendingSegments == 0
	})
	f.check("kept", 0, 0, n, size)
	f.agree()
}

// read fetches once, until the answer is not a timeout, and returns its error.
func (f *faults) read(topic string, offset int64) error {
	c := kit.Dial(f.t, f.Addr)
	var err error
	kit.Eventually(f.t, 30*time.Second, "the fetch is decided", func() bool {
		req := kit.Fetch(12, topic, 0, offset, 1)
		req.MaxWaitMillis = 1000
		p := c.Call(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		err = kerr.ErrorForCode(p.ErrorCode)
		return err != nil && !errors.Is(err, kerr.RequestTimedOut) || len(p.RecordBatches) > 0
	})
	return err
}

// spoil prepares a topic of ten remote segments and another one beside it.
func (f *faults) prepare() []string {
	for _, topic := range []string{"hurt", "well"} {
		f.create(topic, 1, small(11_200))
		f.write(topic, 0, 0, 100, 1000, time.Time{})
		f.tiered(topic, 0, 9)
		f.localOnlyTail(topic, 0)
	}
	id := f.id("hurt")
	var keys []string
	for _, k := range f.liveKeys() {
		if strings.Contains(k, id) {
			keys = append(keys, k)
		}
	}
	return keys
}

func corruptObject(f *faults) {
	keys := f.prepare()
	cl, bucket, ctx := f.m.Client(), f.m.Bucket, f.t.Context()
	o, err := cl.GetObject(ctx, bucket, keys[4], minio.GetObjectOptions{})
	require.NoError(f.t, err)
	var data bytes.Buffer
	_, err = data.ReadFrom(o)
	require.NoError(f.t, err)
	data.Bytes()[data.Len()/3] ^= 0x40
	_, err = cl.PutObject(ctx, bucket, keys[4], &data, int64(data.Len()), minio.PutObjectOptions{})
	require.NoError(f.t, err)
	require.Error(f.t, f.read("hurt", 45))
	f.logged(keys[4], "the log names the object")
	_, says, code := f.CLI("", "consume", "hurt", "--exit-at-end", "--timeout", "3s")
	require.Equal(f.t, 1, code, "who reads to the end does not wait for ever in silence")
	require.Contains(f.t, says, "REQUEST_TIMED_OUT: partition 0 has records below offset 100, but none came within 3s")
	_, says, code = f.CLI("", "consume", "hurt", "--group", "readers", "--exit-at-end", "--timeout", "3s")
	require.Equal(f.t, 1, code, "nor does a group")
	require.Contains(f.t, says, "REQUEST_TIMED_OUT: partition 0 has records below offset 100, but none came within 3s")
	f.check("hurt", 0, 0, 40, 1000)
	f.check("hurt", 0, 50, 100, 1000)
	f.check("well", 0, 0, 100, 1000)
	f.write("hurt", 0, 100, 20, 1000, time.Time{})
	f.tiered("hurt", 0, 10)
}

// logged waits until the log says something: whoever says it may be at work
// beside the request that failed.
func (f *faults) logged(text, what string) {
	f.t.Helper()
	kit.Eventually(f.t, 10*time.Second, what, func() bool { return strings.Contains(f.Log(), text) })
}

func missingObject(f *faults) {
	keys := f.prepare()
	require.NoError(f.t, f.m.Client().RemoveObject(f.t.Context(), f.m.Bucket, keys[4], minio.RemoveObjectOptions{}))
	require.Error(f.t, f.read("hurt", 45))
	f.again(true)
	require.Error(f.t, f.read("hurt", 45))
	f.logged(keys[4], "the log names the object")
	f.check("hurt", 0, 0, 40, 1000)
	f.check("hurt", 0, 50, 100, 1000)
	f.check("well", 0, 0, 100, 1000)
	require.Contains(f.t, f.liveKeys(), keys[4], "nothing is forgotten because of an answer of the store")
}

func emptiedBucket(f *faults) {
	f.prepare()
	f.write("well", 0, 100, 5, 1000, time.Time{})
	for _, k := range f.keys("") {
		require.NoError(f.t, f.m.Client().RemoveObject(f.t.Context(), f.m.Bucket, k, minio.RemoveObjectOptions{}))
	}
	local := f.offset("well", 0, -4)
	require.Error(f.t, f.read("hurt", 45))
	f.check("well", 0, local, 105, 1000)
	f.again(true)
	require.Error(f.t, f.read("hurt", 45))
	f.logged("someone emptied it", "the log says that the bucket was emptied")
	f.check("well", 0, local, 105, 1000)
	live := f.partition("well", 0).RemoteSegments
	f.write("well", 0, 105, 100, 1000, time.Time{})
	f.tiered("well", 0, live+8)
	f.localOnlyTail("well", 0)
	f.check("well", 0, local, 205, 1000)
	require.Zero(f.t, f.offset("well", 0, -2), "nothing is dropped because of an answer of the store")
}

func restartDuringOutage(f *faults) {
	const size = 1000
	f.create("down", 1, small(11_200))
	f.write("down", 0, 0, 60, size, time.Time{})
	f.tiered("down", 0, 4)
	f.localOnlyTail("down", 0)
	f.proxy.Set(func(*http.Request) kit.Fault { return kit.Fault{Drop: true} })
	f.write("down", 0, 60, 60, size, time.Time{})
	for i := range 3 {
		f.again(i%2 == 0)
		local := f.offset("down", 0, -4)
		f.check("down", 0, local, 120, size)
		require.Zero(f.t, f.offset("down", 0, -2))
	}
	code, page := f.Get("/readyz")
	require.Equal(f.t, 200, code)
	kit.Eventually(f.t, 10*time.Second, "readiness says that the tier is degraded", func() bool {
		_, page = f.Get("/readyz")
		return strings.Contains(page, "degraded")
	})
	f.proxy.Set(nil)
	f.tiered("down", 0, 8)
	f.check("down", 0, 0, 120, size)
	f.agree()
}
