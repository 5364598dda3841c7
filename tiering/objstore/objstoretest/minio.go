package objstoretest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	miniocreds "github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"
)

// MinIO is a running MinIO server with an empty folder of its own.
type MinIO struct {
	// Endpoint is a URL, http://127.0.0.1:PORT.
	Endpoint             string
	AccessKey, SecretKey string
	// Dir holds its data.
	Dir string

	client  *minio.Client
	process *exec.Cmd
	output  *lockedBuffer
	buckets atomic.Int64
}

// lockedBuffer keeps the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// minioStartTimeout is long, for machines that do much else.
const minioStartTimeout = 60 * time.Second

// StartMinIO starts a MinIO on a free port, waits until it is ready, and stops it
// when the test ends. Where the binary is missing the test is skipped (Tool).
func StartMinIO(t testing.TB) *MinIO {
	t.Helper()
	binary := Tool(t, "minio")
	var err error
	for range 3 { // another process may take the port first
		var m *MinIO
		if m, err = startMinIO(t, binary); err == nil {
			return m
		}
	}
	require.NoError(t, err)
	return nil
}

func startMinIO(t testing.TB, binary string) (*MinIO, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	m := &MinIO{Endpoint: "http://" + address, AccessKey: "strandline-test", SecretKey: "strandline-test-secret", Dir: t.TempDir(), output: &lockedBuffer{}}
	m.process = exec.Command(binary, "server", "--quiet", "--address", address, "--console-address", "127.0.0.1:0", m.Dir)
	m.process.Env = append(m.process.Environ(), "MINIO_ROOT_USER="+m.AccessKey, "MINIO_ROOT_PASSWORD="+m.SecretKey,
		"MINIO_BROWSER=off", "MINIO_CI_CD=1", "MINIO_UPDATE=off", "HOME="+t.TempDir())
	m.process.Stdout, m.process.Stderr = m.output, m.output
	if err := m.process.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- m.process.Wait() }()
	stop := sync.OnceFunc(func() {
		_ = m.process.Process.Kill()
		<-exited
	})
	if err := m.waitReady(exited); err != nil {
		stop()
		return nil, err
	}
	t.Cleanup(stop)
	m.client, err = minio.New(address, &minio.Options{Creds: miniocreds.NewStaticV4(m.AccessKey, m.SecretKey, "")})
	return m, err
}

func (m *MinIO) waitReady(exited chan error) error {
	deadline := time.NewTimer(minioStartTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := http.Get(m.Endpoint + "/minio/health/ready"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-exited:
			exited <- err
			return fmt.Errorf("minio ended: %v: %s", err, m.output)
		case <-deadline.C:
			return fmt.Errorf("minio is not ready after %v: %s", minioStartTimeout, m.output)
		case <-tick.C:
		}
	}
}

// PID is the server's process id.
func (m *MinIO) PID() int { return m.process.Process.Pid }

// NewBucket makes an empty bucket and returns its name.
func (m *MinIO) NewBucket(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", m.buckets.Add(1))
	require.NoError(t, m.client.MakeBucket(context.Background(), name, minio.MakeBucketOptions{}))
	return name
}

// Keys lists a bucket with a client that is not ours.
func (m *MinIO) Keys(t testing.TB, bucket, prefix string) []string {
	t.Helper()
	var keys []string
	for o := range m.client.ListObjects(context.Background(), bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		require.NoError(t, o.Err)
		keys = append(keys, o.Key)
	}
	return keys
}

// Client is the client that is not ours.
func (m *MinIO) Client() *minio.Client { return m.client }

// Host is the endpoint without its scheme.
func (m *MinIO) Host() string { return strings.TrimPrefix(m.Endpoint, "http://") }
