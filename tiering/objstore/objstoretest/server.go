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

// Server is a running S3 server with an empty folder of its own.
type Server struct {
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

// program is how a server is started on an address.
type program struct {
	name string
	// args get the address and the folder, env the keys.
	args func(address, dir string) []string
	env  func(access, secret string) []string
	// health is a path that answers 200 once the server is ready.
	health string
}

var minioProgram = program{
	name: "minio",
	args: func(address, dir string) []string {
		return []string{"server", "--quiet", "--address", address, "--console-address", "127.0.0.1:0", dir}
	},
	env: func(access, secret string) []string {
		return []string{"MINIO_ROOT_USER=" + access, "MINIO_ROOT_PASSWORD=" + secret, "MINIO_BROWSER=off", "MINIO_CI_CD=1", "MINIO_UPDATE=off"}
	},
	health: "/minio/health/ready",
}

var versityProgram = program{
	name: "versitygw",
	args: func(address, dir string) []string {
		return []string{"--port", address, "--health", "/-/health", "--quiet", "posix", dir}
	},
	env: func(access, secret string) []string {
		return []string{"ROOT_ACCESS_KEY=" + access, "ROOT_SECRET_KEY=" + secret}
	},
	health: "/-/health",
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

// startTimeout is long, for machines that do much else.
const startTimeout = 60 * time.Second

// StartMinIO starts a MinIO on a free port, waits until it is ready, and stops it
// when the test ends. Where the binary is missing the test is skipped (Tool).
func StartMinIO(t testing.TB) *Server { return start(t, minioProgram) }

// StartVersity does the same with a versitygw over its posix backend.
func StartVersity(t testing.TB) *Server { return start(t, versityProgram) }

func start(t testing.TB, p program) *Server {
	t.Helper()
	binary := Tool(t, p.name)
	var err error
	for range 3 { // another process may take the port first
		var m *Server
		if m, err = startOnce(t, p, binary); err == nil {
			return m
		}
	}
	require.NoError(t, err)
	return nil
}

func startOnce(t testing.TB, p program, binary string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	m := &Server{Endpoint: "http://" + address, AccessKey: "strandline-test", SecretKey: "strandline-test-secret", Dir: t.TempDir(), output: &lockedBuffer{}}
	m.process = exec.Command(binary, p.args(address, m.Dir)...)
	m.process.Env = append(append(m.process.Environ(), p.env(m.AccessKey, m.SecretKey)...), "HOME="+t.TempDir())
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
	if err := m.waitReady(p, exited); err != nil {
		stop()
		return nil, err
	}
	t.Cleanup(stop)
	m.client, err = minio.New(address, &minio.Options{Creds: miniocreds.NewStaticV4(m.AccessKey, m.SecretKey, "")})
	return m, err
}

func (m *Server) waitReady(p program, exited chan error) error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := http.Get(m.Endpoint + p.health); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-exited:
			exited <- err
			return fmt.Errorf("%s ended: %v: %s", p.name, err, m.output)
		case <-deadline.C:
			return fmt.Errorf("%s is not ready after %v: %s", p.name, startTimeout, m.output)
		case <-tick.C:
		}
	}
}

// PID is the server's process id.
func (m *Server) PID() int { return m.process.Process.Pid }

// NewBucket makes an empty bucket and returns its name.
func (m *Server) NewBucket(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", m.buckets.Add(1))
	require.NoError(t, m.client.MakeBucket(context.Background(), name, minio.MakeBucketOptions{}))
	return name
}

// Keys lists a bucket with a client that is not the AWS SDK.
func (m *Server) Keys(t testing.TB, bucket, prefix string) []string {
	t.Helper()
	var keys []string
	for o := range m.client.ListObjects(context.Background(), bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		require.NoError(t, o.Err)
		keys = append(keys, o.Key)
	}
	return keys
}

// Client is that client.
func (m *Server) Client() *minio.Client { return m.client }

// Host is the endpoint without its scheme.
func (m *Server) Host() string { return strings.TrimPrefix(m.Endpoint, "http://") }
