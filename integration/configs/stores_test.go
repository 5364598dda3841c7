package configs

import (
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// storeRows show what a broker says to its store.
var storeRows = map[string]func(t *testing.T){
	"remote.cache.dir": func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "elsewhere")
		n := start(t, map[string]string{"remote.cache.dir": dir, "log.remote.storage.enable": "true"})
		n.remote()
		require.NotEmpty(t, tree(dir))
	},
	"remote.store.url": func(t *testing.T) {
		s := store(t, map[string]string{"remote.store.url": "s3://strandline/else/where"})
		s.saw(t, "the prefix", func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/strandline/else/where/") })
	},
	"remote.store.endpoint": func(t *testing.T) { store(t, nil) },
	"remote.store.driver": func(t *testing.T) {
		agent := func(want string) func(*http.Request) bool {
			return func(r *http.Request) bool { return strings.Contains(r.UserAgent(), want) }
		}
		store(t, map[string]string{"remote.store.driver": "minio"}).saw(t, "minio-go", agent("minio-go"))
		store(t, map[string]string{"remote.store.driver": "aws"}).saw(t, "the AWS SDK", agent("aws-sdk-go-v2"))
	},
	"remote.store.access.key.id": func(t *testing.T) {
		store(t, nil).saw(t, "the key in the signature", func(r *http.Request) bool {
			return strings.Contains(r.Header.Get("Authorization"), "Credential="+kit.MinIOUser+"/")
		})
	},
	"remote.store.secret.access.key": func(t *testing.T) {
		m := kit.StartMinIO(t, "strandline")
		set := m.Properties("p")
		set["remote.store.secret.access.key"] = "not the secret"
		n := start(t, set)
		n.eventually("the store refuses", func() bool {
			_, page := n.Get("/readyz")
			return strings.Contains(page, `"tier":"degraded"`)
		})
	},
	"remote.store.region": func(t *testing.T) {
		store(t, nil).saw(t, "the region in the signature", func(r *http.Request) bool {
			return strings.Contains(r.Header.Get("Authorization"), "/us-east-1/s3/")
		})
	},
	"remote.store.checksum": func(t *testing.T) {
		for value, header := range map[string]string{"crc32c": "X-Amz-Checksum-Crc32c", "sha256": "X-Amz-Checksum-Sha256", "md5": "Content-Md5"} {
			store(t, map[string]string{"remote.store.checksum": value}).saw(t, header, func(r *http.Request) bool {
				return isSegmentPut(r) && r.Header.Get(header) != ""
			})
		}
	},
	"remote.store.storage.class": func(t *testing.T) {
		store(t, map[string]string{"remote.store.storage.class": "STANDARD"}).saw(t, "the class", func(r *http.Request) bool {
			return isSegmentPut(r) && r.Header.Get("X-Amz-Storage-Class") == "STANDARD"
		})
	},
}

func isSegmentPut(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".seg")
}

// recorded is a server with a MinIO behind a proxy that keeps the requests.
type recorded struct {
	*running
	mu       sync.Mutex
	requests []*http.Request
}

// store starts one, and has a segment uploaded.
func store(t *testing.T, set map[string]string) *recorded {
	t.Helper()
	m := kit.StartMinIO(t, "strandline")
	p := kit.StartProxy(t, m.Addr)
	r := &recorded{}
	p.Set(func(req *http.Request) kit.Fault {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, &http.Request{Method: req.Method, URL: req.URL, Header: req.Header.Clone(), Host: req.Host})
		return kit.Fault{}
	})
	all := m.Properties("prefix")
	all["remote.store.endpoint"] = "http://" + p.Addr
	maps.Copy(all, set)
	r.running = start(t, all)
	r.archived()
	return r
}

// remote writes to a tiered topic until its start has left the disk, and reads
// that.
func (n *running) remote() {
	n.t.Helper()
	topic := n.create(1, "remote.storage.enable=true", "internal.segment.bytes=400000", "local.retention.bytes=1", "file.delete.delay.ms=0")
	n.write(topic, 45, 20_000, time.Now())
	n.eventually("the start is in the tier alone", func() bool { return n.localStart(topic) > 0 })
	n.eventually("it is read", func() bool { return len(n.fetch(topic, 0, 1000)) > 0 })
}

func (r *recorded) saw(t *testing.T, what string, match func(*http.Request) bool) {
	t.Helper()
	kit.Eventually(t, patience, "the store is asked with "+what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, req := range r.requests {
			if match(req) {
				return true
			}
		}
		return false
	})
}
