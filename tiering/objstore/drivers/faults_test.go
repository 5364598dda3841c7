package drivers_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/objstoretest"
	"strandline/tiering/objstore/s3proto"
)

// stub answers every request alike and counts them.
func stub(t *testing.T, handler http.HandlerFunc) (cfg s3proto.Config, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s3proto.Config{Bucket: "bucket", Endpoint: server.URL, PathStyle: true, AccessKeyID: "key", SecretAccessKey: "secret"}, requests
}

func answer(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead && code != "" {
			_, _ = w.Write([]byte("<Error><Code>" + code + "</Code><Message>says the stub</Message></Error>"))
		}
	}
}

// each calls every verb of a store.
func each(s objstore.Store, fn func(verb objstore.Verb, err error)) {
	ctx := context.Background()
	_, err := s.Put(ctx, "k", objstore.NewBytesBody([]byte("x")), objstore.PutOptions{IfAbsent: true})
	fn(objstore.VerbPut, err)
	_, err = s.Get(ctx, "k", 0, 5)
	fn(objstore.VerbGet, err)
	_, err = s.Head(ctx, "k")
	fn(objstore.VerbHead, err)
	fn(objstore.VerbDelete, s.Delete(ctx, "k"))
	fn(objstore.VerbDelete, s.Delete(ctx, "k", "l"))
	err = nil
	for _, err = range s.List(ctx, "", "") {
		break
	}
	fn(objstore.VerbList, err)
}

// TestSlowDownIsRetriableForEveryVerb: OP-03; HEAD has no body to say why.
func TestSlowDownIsRetriableForEveryVerb(t *testing.T) {
	eachDriver(t, slowDownIsRetriableForEveryVerb)
}

func slowDownIsRetriableForEveryVerb(t *testing.T, d driver) {
	for _, c := range []struct {
		status int
		code   string
	}{{503, "SlowDown"}, {503, "ServiceUnavailable"}, {503, ""}, {500, "InternalError"}, {502, ""}, {504, ""}, {429, ""}, {400, "RequestTimeout"}} {
		cfg, requests := stub(t, answer(c.status, c.code))
		s := d.open(t, cfg)
		each(s, func(verb objstore.Verb, err error) {
			if verb == objstore.VerbHead && c.status == 400 {
				return // no body, no code
			}
			require.Error(t, err)
			require.True(t, objstore.IsRetriable(err), "%d %s %s: %v", c.status, c.code, verb, err)
		})
		require.EqualValues(t, 6, requests.Load(), "the driver itself retries nothing")
	}
}

func TestErrorsNameTheRemedy(t *testing.T) { eachDriver(t, errorsNameTheRemedy) }

func errorsNameTheRemedy(t *testing.T, d driver) {
	for _, c := range []struct {
		status int
		code   string
		class  error
		remedy string
	}{
		{404, "NoSuchBucket", objstore.ErrNoBucket, "create the bucket"},
		{403, "AccessDenied", objstore.ErrAccess, "s3:GetObject"},
		{403, "InvalidAccessKeyId", objstore.ErrAccess, "remote.store.access.key.id"},
		{403, "SignatureDoesNotMatch", objstore.ErrAccess, "secret is wrong"},
		{403, "RequestTimeTooSkewed", objstore.ErrAccess, "clock"},
		{301, "PermanentRedirect", objstore.ErrInvalid, "remote.store.region=eu-central-1"},
		{400, "AuthorizationHeaderMalformed", objstore.ErrInvalid, "remote.store.region=eu-central-1"},
		{507, "XMinioStorageFull", objstore.ErrFull, "free space"},
		{501, "NotImplemented", objstore.ErrInvalid, "remote.store.checksum"},
	} {
		cfg, _ := stub(t, answer(c.status, c.code))
		s := d.open(t, cfg)
		err := objstore.Probe(t.Context(), s)
		require.ErrorIs(t, err, c.class, c.code)
		require.Contains(t, objstore.Remedy(err), c.remedy)
		require.Contains(t, err.Error(), "bucket")
		require.Contains(t, err.Error(), strings.TrimPrefix(cfg.Endpoint, "http://"))
		require.NotContains(t, err.Error(), "secret\"")
	}
	for status, class := range map[int]error{412: objstore.ErrExists, 409: objstore.ErrConflict} {
		cfg, _ := stub(t, answer(status, ""))
		_, err := d.open(t, cfg).Put(t.Context(), "k", objstore.NewBytesBody(nil), objstore.PutOptions{IfAbsent: true})
		require.ErrorIs(t, err, class)
	}
}

func TestUnreachableStores(t *testing.T) { eachDriver(t, unreachableStores) }

func unreachableStores(t *testing.T, d driver) {
	cfg, _ := stub(t, answer(200, ""))
	probe := func(change func(*s3proto.Config)) error {
		c := cfg
		change(&c)
		return objstore.Probe(t.Context(), d.open(t, c))
	}
	err := probe(func(c *s3proto.Config) { c.Endpoint = "http://127.0.0.1:1" })
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	require.Contains(t, objstore.Remedy(err), "remote.store.endpoint")
	require.True(t, objstore.IsRetriable(err))
	err = probe(func(c *s3proto.Config) { c.Endpoint = strings.Replace(cfg.Endpoint, "http://", "https://", 1) })
	require.Contains(t, objstore.Remedy(err), "http://")
	require.False(t, objstore.IsRetriable(err))
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	err = probe(func(c *s3proto.Config) { c.Endpoint = tls.URL })
	require.ErrorIs(t, err, objstore.ErrAccess)
	require.Contains(t, objstore.Remedy(err), "certificate")
	err = probe(func(c *s3proto.Config) { c.Endpoint = "http://no-such-host.invalid:9000" })
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	require.Contains(t, objstore.Remedy(err), "no-such-host.invalid")
}

func TestRangeThatIsIgnoredIsRefused(t *testing.T) { eachDriver(t, rangeThatIsIgnoredIsRefused) }

func rangeThatIsIgnoredIsRefused(t *testing.T, d driver) {
	cfg, _ := stub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("the whole object"))
	})
	_, err := d.open(t, cfg).Get(t.Context(), "k", 4, 5)
	require.ErrorIs(t, err, objstore.ErrUnavailable)
}

// countingBody counts the bytes read of each position.
type countingBody struct {
	objstore.Body
	read atomic.Int64
}

func (c *countingBody) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.Body.ReadAt(p, off)
	c.read.Add(int64(n))
	return n, err
}

// sparseSums knows the checksum of parts, as a segment object does.
type sparseSums struct{ *countingBody }

func (s sparseSums) RangeCRC32C(off, n int64) (uint32, bool) {
	b := make([]byte, n)
	_, err := s.countingBody.Body.ReadAt(b, off)
	return objstore.CRC32C(b), err == nil
}

// bodyIsReadOnce: over plain HTTP, with the checksum known, each byte is read
// once: not for a signature, not for the SDK's own checksum.
func bodyIsReadOnce(t *testing.T, m *objstoretest.Server, d driver) {
	s := objstore.NewGuard(d.open(t, config(m, m.NewBucket(t))), objstore.GuardConfig{})
	for _, size := range []int64{0, 1, 100_000, s3proto.MinPartBytes, s3proto.MinPartBytes + 1, 2*s3proto.MinPartBytes + 77} {
		data := bytes.Repeat([]byte{byte(size)}, int(size))
		body := &countingBody{Body: objstore.NewBytesBody(data)}
		_, err := s.Put(t.Context(), "once/"+strconv.FormatInt(int64(size), 10), sparseSums{body},
			objstore.PutOptions{IfAbsent: true, CRC32C: objstore.CRC32C(data), HasCRC: true})
		require.NoError(t, err)
		require.Equal(t, size, body.read.Load())
	}
}

func faultsOnTheWay(t *testing.T, m *objstoretest.Server, d driver) {
	proxy := objstoretest.NewProxy(t, m.Endpoint)
	cfg := config(m, m.NewBucket(t))
	cfg.Endpoint = proxy.URL
	driver := d.open(t, cfg)
	data := bytes.Repeat([]byte("0123456789abcdef"), s3proto.MinPartBytes/16+1000)
	for name, fault := range map[string]objstoretest.Fault{
		"503":             {Status: 503, Code: "SlowDown"},
		"no answer":       {Drop: true},
		"answer lost":     {Drop: true, AfterEffect: true},
		"body cut":        {CutBody: 100},
		"request hangs":   {Hang: true},
		"gateway is gone": {Status: 502},
	} {
		t.Run(name, func(t *testing.T) {
			guard := objstore.GuardConfig{BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond}
			if fault.Hang {
				guard.RequestTimeout = 400 * time.Millisecond
			}
			s := objstore.NewGuard(driver, guard)
			// Every third request, of whatever kind.
			n := 0
			proxy.SetFault(func(*http.Request) *objstoretest.Fault {
				if n++; n%3 == 2 {
					return &fault
				}
				return nil
			})
			defer proxy.SetFault(nil)
			for _, size := range []int{50_000, len(data)} {
				key := "faults/" + strings.ReplaceAll(name, " ", "-") + "/" + strconv.FormatInt(int64(size), 10)
				info, err := s.Put(t.Context(), key, objstore.NewBytesBody(data[:size]), objstore.PutOptions{IfAbsent: true, CRC32C: objstore.CRC32C(data[:size]), HasCRC: true})
				require.NoError(t, err)
				require.EqualValues(t, size, info.Bytes)
				b, err := objstore.ReadRange(t.Context(), s, key, 10, int64(size)-10)
				require.NoError(t, err)
				require.True(t, bytes.Equal(data[10:size], b))
				keys := 0
				for _, err := range s.List(t.Context(), key, "") {
					require.NoError(t, err)
					keys++
				}
				require.Equal(t, 1, keys)
				require.NoError(t, s.Delete(t.Context(), key, key+"-not-there"))
				_, err = s.Head(t.Context(), key)
				require.ErrorIs(t, err, objstore.ErrNotFound)
			}
		})
	}
}

// interruptedUploads: the parts of an upload whose broker died are found and
// removed, and never show as an object.
func interruptedUploads(t *testing.T, m *objstoretest.Server, d driver) {
	bucket := m.NewBucket(t)
	s := d.open(t, config(m, bucket))
	u, err := s.BeginUpload(t.Context(), "dead/1.seg", 2*s3proto.MinPartBytes, objstore.PutOptions{IfAbsent: true})
	require.NoError(t, err)
	part := objstore.NewBytesBody(make([]byte, s3proto.MinPartBytes))
	_, err = s.PutPart(t.Context(), u, 1, part, objstore.CRC32C(make([]byte, s3proto.MinPartBytes)))
	require.NoError(t, err)
	require.Empty(t, m.Keys(t, bucket, ""))
	g := objstore.NewGuard(s, objstore.GuardConfig{})
	n, err := objstore.AbortStaleUploads(t.Context(), g, "dead/1.seg", time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Zero(t, n, "not old enough")
	n, err = objstore.AbortStaleUploads(t.Context(), g, "dead/1.seg", time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = s.CompleteUpload(t.Context(), u, []objstore.Part{{Number: 1, Tag: "x"}}, objstore.PutOptions{})
	require.ErrorIs(t, err, objstore.ErrNotFound)
	require.NoError(t, s.AbortUpload(t.Context(), u), "again")
}

func wrongSettings(t *testing.T, m *objstoretest.Server, d driver, q quirks) {
	good := config(m, m.NewBucket(t))
	for name, c := range map[string]struct {
		change func(*s3proto.Config)
		class  error
		remedy string
	}{
		"bucket": {func(c *s3proto.Config) { c.Bucket = "no-such-bucket" }, objstore.ErrNoBucket, "create the bucket"},
		"key":    {func(c *s3proto.Config) { c.AccessKeyID = "somebody" }, objstore.ErrAccess, "remote.store.access.key.id"},
		"secret": {func(c *s3proto.Config) { c.SecretAccessKey = "guessed-wrong" }, objstore.ErrAccess, "secret is wrong"},
	} {
		cfg := good
		c.change(&cfg)
		err := objstore.Probe(t.Context(), d.open(t, cfg))
		require.ErrorIs(t, err, c.class, name)
		require.Contains(t, objstore.Remedy(err), c.remedy, name)
		require.False(t, objstore.IsRetriable(err), name)
	}
	cfg := good
	cfg.StorageClass = "NO_SUCH_CLASS"
	_, err := d.open(t, cfg).Put(t.Context(), "k", objstore.NewBytesBody(nil), objstore.PutOptions{})
	if q.checksStorageClass {
		require.Contains(t, objstore.Remedy(err), "remote.store.storage.class")
	}
	cfg.StorageClass = "REDUCED_REDUNDANCY"
	_, err = d.open(t, cfg).Put(t.Context(), "k", objstore.NewBytesBody(nil), objstore.PutOptions{})
	require.NoError(t, err)
}
