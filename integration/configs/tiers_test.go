package configs

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// tierRows show the effect of what bounds the tier: sizes, counts, waits. A store
// of this package can hold requests back, which no real one does when told to.
var tierRows = map[string]func(t *testing.T){
	"remote.store.path.style": func(t *testing.T) {
		n, b := bucketed(t)
		n.eventually("the bucket is in the path", func() bool {
			return slices.ContainsFunc(b.all(), func(r arrived) bool { return strings.HasPrefix(r.URL.Path, "/my-bucket/") })
		})
		n, b = bucketed(t, "remote.store.path.style=false", "remote.store.endpoint=http://store.invalid:1")
		n.eventually("the bucket is in the host name", func() bool { return strings.Contains(n.Log(), "my-bucket.store.invalid") })
		require.Empty(t, b.all())
	},
	"remote.store.part.size.bytes": func(t *testing.T) {
		n, b := bucketed(t, "remote.store.part.size.bytes=5242880")
		topic := n.create(1, "remote.storage.enable=true", "internal.segment.bytes=6000000")
		n.write(topic, 8, 900_000, time.Now())
		n.eventually("a part has the size", func() bool {
			return slices.ContainsFunc(b.all(), func(r arrived) bool {
				return r.URL.Query().Get("partNumber") == "1" && r.bytes >= 5242880 && r.bytes < 5400000
			})
		})
	},
	"remote.store.request.timeout.ms": func(t *testing.T) {
		n, b := bucketed(t, "remote.store.request.timeout.ms=200")
		b.hang("PUT")
		topic := n.create(1, "remote.storage.enable=true", "internal.segment.bytes=200")
		n.write(topic, 3, 100, time.Now())
		n.eventually("requests are given up and tried again", func() bool { return n.Metric("strandline_remote_retries_total", `verb="put"`) > 0 })
	},
	"remote.upload.deadline.ms": func(t *testing.T) {
		n, b := bucketed(t, "remote.upload.deadline.ms=300")
		b.hang("PUT")
		topic := n.create(1, "remote.storage.enable=true", "internal.segment.bytes=200")
		n.write(topic, 3, 100, time.Now())
		n.eventually("the upload is given up", func() bool { return n.Metric("strandline_remote_copy_failures_total") > 0 })
	},
	"remote.log.manager.copier.thread.pool.size": func(t *testing.T) {
		n, b := bucketed(t, "remote.log.manager.copier.thread.pool.size=3")
		b.hang("PUT")
		for range 6 {
			n.write(n.create(1, "remote.storage.enable=true", "internal.segment.bytes=200"), 3, 100, time.Now())
		}
		n.eventually("three uploads wait", func() bool { return b.waiting() == 3 })
		n.passed()
		require.Equal(t, 3, b.waiting())
	},
	"remote.log.reader.threads": func(t *testing.T) {
		n, b := bucketed(t, "remote.log.reader.threads=2")
		var topics []string
		for range 5 {
			topics = append(topics, n.onlyRemote(10, 100))
		}
		b.hang("GET")
		for _, topic := range topics {
			kit.Dial(t, n.Addr).Send(kit.Fetch(12, topic, 0, 0, 1<<20))
		}
		n.eventually("two reads wait at the store, the others here", func() bool {
			return b.waiting() == 2 && n.Metric("strandline_remote_limited_total", `verb="get"`) > 0
		})
	},
	"remote.list.offsets.request.timeout.ms": func(t *testing.T) {
		n, b := bucketed(t, "remote.list.offsets.request.timeout.ms=200")
		topic := n.onlyRemote(10, 100)
		b.hang("GET")
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID, req.TimeoutMillis = 9, -1, 0 // it cannot say how long it waits
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rt.Partitions = append(rt.Partitions, kmsg.ListOffsetsRequestTopicPartition{CurrentLeaderEpoch: -1, Timestamp: 1})
		req.Topics = append(req.Topics, rt)
		code := ask[*kmsg.ListOffsetsResponse](n, req).Topics[0].Partitions[0].ErrorCode
		require.ErrorIs(t, kerr.ErrorForCode(code), kerr.RequestTimedOut)
	},
	"remote.cache.size.bytes": func(t *testing.T) {
		n := with(t, "remote.cache.size.bytes=5000000")
		require.EqualValues(t, 5000000, n.Metric("strandline_cache_limit_bytes"))
	},
	"remote.chunk.size.bytes": func(t *testing.T) {
		n, b := bucketed(t, "remote.chunk.size.bytes=2097152")
		n.fetch(n.onlyRemote(10, 900_000), 0, 1)
		require.Contains(t, b.ranges(), "bytes=0-2097151")
	},
	"remote.manifest.interval.ms": func(t *testing.T) {
		rare := with(t, "remote.manifest.interval.ms=3600000")
		often := with(t, "remote.manifest.interval.ms=50")
		for _, n := range []*running{rare, often} {
			topic := n.create(1, "remote.storage.enable=true", "internal.segment.bytes=200")
			for i := range int64(5) {
				n.write(topic, 2, 100, time.Now())
				n.eventually("segments go to the tier", func() bool { return n.uploaded(topic) > 2*i })
				if n == often {
					n.eventually("a manifest each time", func() bool { return n.Metric("strandline_remote_manifests_total") > float64(i) })
				}
			}
		}
		require.LessOrEqual(t, rare.Metric("strandline_remote_manifests_total"), 2.0)
	},
	"remote.object.delete.delay.ms": objectsStay("remote.object.delete.delay.ms=3600000"),
	"remote.recovery.window.ms":     objectsStay("remote.recovery.window.ms=3600000"),
	"remote.log.manager.task.interval.ms": func(t *testing.T) {
		// What is put off is looked at again at the next round, which is half a
		// minute away by default.
		n := with(t)
		topic := n.create(1, "remote.storage.enable=true", "internal.segment.bytes=200", "remote.copy.lag.ms=300", "remote.copy.lag.bytes=-1")
		n.write(topic, 3, 100, time.Now())
		n.eventually("segments go to the tier", func() bool { return n.uploaded(topic) > 0 })
	},
}

// objectsStay has retention expire objects, which then wait.
func objectsStay(setting string) func(t *testing.T) {
	return func(t *testing.T) {
		n := with(t, setting)
		topic := n.onlyRemote(4, 100)
		n.mustAlter(ofTopic, topic, "local.retention.bytes=1", "retention.bytes=1")
		n.eventually("retention removes all", func() bool { return n.start(topic) >= 2 })
		n.eventually("objects wait", func() bool { return n.Metric("strandline_remote_waiting_objects") > 0 })
		n.archived()
		require.NotEmpty(t, n.objects(topic))
		gone := with(t)
		topic = gone.onlyRemote(4, 100)
		gone.mustAlter(ofTopic, topic, "retention.bytes=1")
		gone.eventually("objects go", func() bool { return gone.start(topic) >= 2 && len(gone.objects(topic)) == 0 })
	}
}

// onlyRemote is a topic whose first segments are in the tier alone.
func (n *running) onlyRemote(count, size int) string {
	n.t.Helper()
	topic := n.create(1, "remote.storage.enable=true", fmt.Sprint("internal.segment.bytes=", count*size/2+200), "local.retention.bytes=1", "local.retention.ms=-2")
	n.write(topic, count, size, time.Now())
	n.eventually("the local copy of some goes", func() bool { return n.localStart(topic) > 0 })
	return topic
}

// bucketed starts a server with a store of this test.
func bucketed(t *testing.T, settings ...string) (*running, *bucket) {
	b := &bucket{objects: map[string][]byte{}, release: make(chan struct{})}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(b.release) })
	return with(t, append([]string{
		"remote.store.url=s3://my-bucket/a/prefix", "remote.store.endpoint=" + server.URL, "remote.store.region=mars-1", "remote.store.path.style=true",
		"remote.store.access.key.id=AKEY", "remote.store.secret.access.key=SKEY",
	}, settings...)...), b
}

// arrived is a request that reached the store.
type arrived struct {
	*http.Request
	bytes int64
}

// bucket is as much of an object store as a server needs to upload and read.
type bucket struct {
	release chan struct{}

	mu      sync.Mutex
	objects map[string][]byte
	seen    []arrived
	hangs   string
	hanging int
}

// ranges are what was read of segments.
func (b *bucket) ranges() (out []string) {
	for _, r := range b.all() {
		if r.Method == "GET" && strings.HasSuffix(r.URL.Path, ".seg") {
			out = append(out, r.Header.Get("Range"))
		}
	}
	return out
}

// hang has requests of a method for segments wait until the end of the test.
func (b *bucket) hang(method string) { b.mu.Lock(); b.hangs = method; b.mu.Unlock() }

func (b *bucket) waiting() int { b.mu.Lock(); defer b.mu.Unlock(); return b.hanging }

func (b *bucket) all() []arrived { b.mu.Lock(); defer b.mu.Unlock(); return slices.Clone(b.seen) }

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.seen = append(b.seen, arrived{r, int64(len(body))})
	if b.hangs == r.Method && strings.HasSuffix(r.URL.Path, ".seg") {
		b.hanging++
		b.mu.Unlock()
		select {
		case <-b.release:
		case <-r.Context().Done():
		}
		b.mu.Lock()
		b.hanging--
		b.mu.Unlock()
		return
	}
	defer b.mu.Unlock()
	key, query := r.URL.Path, r.URL.Query()
	switch {
	case r.Method == "PUT":
		if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
			body = unchunk(body)
		}
		if !query.Has("partNumber") {
			b.objects[key] = body
		}
		w.Header().Set("ETag", `"e"`)
	case r.Method == "POST" && query.Has("uploads"):
		fmt.Fprint(w, `<InitiateMultipartUploadResult><Bucket>my-bucket</Bucket><Key>k</Key><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == "GET" && query.Has("list-type"):
		fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
		for _, k := range slices.Sorted(maps.Keys(b.objects)) {
			if name := strings.TrimPrefix(k, "/my-bucket/"); strings.HasPrefix(name, query.Get("prefix")) {
				fmt.Fprintf(w, `<Contents><Key>%s</Key><Size>%d</Size><ETag>"e"</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>`, name, len(b.objects[k]))
			}
		}
		fmt.Fprint(w, `</ListBucketResult>`)
	case r.Method == "GET" || r.Method == "HEAD":
		object, ok := b.objects[key]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			if r.Method == "GET" {
				fmt.Fprint(w, `<Error><Code>NoSuchKey</Code></Error>`)
			}
			return
		}
		w.Header().Set("ETag", `"e"`)
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), strings.NewReader(string(object)))
	}
}

// unchunk takes the framing of a signed stream away.
func unchunk(body []byte) []byte {
	var out []byte
	for {
		head, rest, ok := strings.Cut(string(body), "\r\n")
		var size int
		if _, err := fmt.Sscanf(head, "%x", &size); !ok || err != nil || size == 0 || size > len(rest) {
			return out
		}
		out, body = append(out, rest[:size]...), []byte(rest[size+2:])
	}
}
