package kit

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Credentials of the MinIO that the kit starts.
const (
	MinIOUser     = "strandlinetest"
	MinIOPassword = "strandlinetestsecret"
)

// MinIO is a running MinIO server with one bucket.
type MinIO struct {
	Addr   string // host:port
	Bucket string
	Dir    string

	t   testing.TB
	cmd *exec.Cmd
}

// StartMinIO starts a MinIO on a fresh folder, or skips where it is missing.
func StartMinIO(t testing.TB, bucket string) *MinIO {
	t.Helper()
	m := &MinIO{Addr: freeAddr(t), Bucket: bucket, Dir: t.TempDir(), t: t}
	Tool(t, "minio")
	m.Start()
	t.Cleanup(m.Kill)
	if err := m.Client().MakeBucket(context.Background(), bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// Start starts the process, again after Kill, and waits until it answers.
func (m *MinIO) Start() {
	m.t.Helper()
	m.cmd = exec.Command(Tool(m.t, "minio"), "server", "--quiet", "--address", m.Addr, "--console-address", "127.0.0.1:0", m.Dir)
	m.cmd.Env = append(m.cmd.Environ(), "MINIO_ROOT_USER="+MinIOUser, "MINIO_ROOT_PASSWORD="+MinIOPassword, "MINIO_UPDATE=off", "MINIO_BROWSER=off")
	if err := StartChild(m.cmd); err != nil {
		m.t.Fatal(err)
	}
	Eventually(m.t, 30*time.Second, "MinIO answers", func() bool {
		resp, err := http.Get("http://" + m.Addr + "/minio/health/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// Kill ends the process.
func (m *MinIO) Kill() {
	if m.cmd != nil && m.cmd.Process != nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	}
}

// Signal sends a signal, e.g. SIGSTOP for a store that hangs.
func (m *MinIO) Signal(sig syscall.Signal) { _ = m.cmd.Process.Signal(sig) }

// Client returns an S3 client that shares no code with the product's driver.
func (m *MinIO) Client() *minio.Client {
	m.t.Helper()
	cl, err := minio.New(m.Addr, &minio.Options{Creds: credentials.NewStaticV4(MinIOUser, MinIOPassword, "")})
	if err != nil {
		m.t.Fatal(err)
	}
	return cl
}

// Keys lists the keys below a prefix, in order.
func (m *MinIO) Keys(prefix string) []string {
	m.t.Helper()
	var keys []string
	for o := range m.Client().ListObjects(context.Background(), m.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			m.t.Fatal(o.Err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// Properties points a server's tier at this MinIO.
func (m *MinIO) Properties(prefix string) map[string]string {
	return map[string]string{
		"remote.store.url":               fmt.Sprintf("s3://%s/%s", m.Bucket, prefix),
		"remote.store.endpoint":          "http://" + m.Addr,
		"remote.store.region":            "us-east-1",
		"remote.store.path.style":        "true",
		"remote.store.access.key.id":     MinIOUser,
		"remote.store.secret.access.key": MinIOPassword,
	}
}

func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
