package conformance

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// refused starts a server that must not start, and returns its log.
func refused(t *testing.T, s *kit.Server, code int, words ...string) string {
	t.Helper()
	s.Spawn()
	require.Equal(t, code, s.Wait(15*time.Second), s.Log())
	for _, w := range words {
		require.Contains(t, s.Log(), w)
	}
	return s.Log()
}

// tree lists a folder's files with sizes and contents hashes of small ones, to
// show that nothing was changed.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".lock" {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %d %x\n", path, len(data), data[:min(len(data), 64)])
		return err
	}))
	return b.String()
}

func TestSecondServerOnTheSameDirectories(t *testing.T) {
	first := kit.Start(t, nil)
	before := tree(t, filepath.Join(first.Dir, "logs"))
	second := kit.New(t, first.Dir, map[string]string{"ready.file": filepath.Join(t.TempDir(), "ready")})
	refused(t, second, 3, fmt.Sprint(first.Pid()), first.Dir)
	require.Equal(t, before, tree(t, filepath.Join(first.Dir, "logs")), "the second server changed nothing")
	code, _ := first.Get("/readyz")
	require.Equal(t, 200, code)
}

func TestPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	s := kit.New(t, t.TempDir(), map[string]string{"listeners": "PLAINTEXT://" + ln.Addr().String()})
	refused(t, s, 4, ln.Addr().String(), "stop what holds the address")
	s = kit.New(t, t.TempDir(), map[string]string{"listeners": "PLAINTEXT://nowhere.invalid:0"})
	require.NotContains(t, refused(t, s, 4, "nowhere.invalid"), "-b wants", "a server has no -b")
}

func TestWildcardWithoutAdvertisedListeners(t *testing.T) {
	dir := t.TempDir()
	s := kit.New(t, dir, map[string]string{"listeners": "PLAINTEXT://0.0.0.0:0"})
	refused(t, s, 2, "advertised.listeners=")
	require.NoDirExists(t, filepath.Join(dir, "logs"), "the disk is untouched")
}

func TestUnmountedLogDirectory(t *testing.T) {
	s := kit.Start(t, nil)
	require.Zero(t, s.Stop())
	logs := filepath.Join(s.Dir, "logs")
	require.NoError(t, os.Rename(logs, logs+".away"))
	refused(t, s, 3, logs)
	require.NoError(t, os.MkdirAll(logs, 0o755))
	refused(t, s, 3, logs)
	entries, err := os.ReadDir(logs)
	require.NoError(t, err)
	for _, e := range entries {
		require.NotEqual(t, "meta.properties", e.Name(), "a known directory that is empty is never initialised again")
	}
	require.NoError(t, os.RemoveAll(logs))
	require.NoError(t, os.Rename(logs+".away", logs))
	s.MustStart()
}

func TestWipedMetadataUnderFullLogs(t *testing.T) {
	s := kit.Start(t, nil)
	require.Zero(t, s.Stop())
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "metadata")))
	refused(t, s, 3, "metadata")
}

func TestForeignDirectory(t *testing.T) {
	s := kit.Start(t, nil)
	require.Zero(t, s.Stop())
	s.Set("node.id", "2")
	refused(t, s, 3, "node.id")
}

func TestRealKafkaDirectory(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	require.NoError(t, os.MkdirAll(filepath.Join(logs, "orders-0"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(logs, "meta.properties"),
		[]byte("version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"), 0o644))
	before := tree(t, logs)
	s := kit.New(t, dir, nil)
	refused(t, s, 3, logs, "Apache Kafka")
	require.Equal(t, before, tree(t, logs))
	require.NoFileExists(t, filepath.Join(logs, ".lock"))
}

func TestUnknownAndUnsafeKeys(t *testing.T) {
	s := kit.New(t, t.TempDir(), map[string]string{"log.segmnt.bytes": "1"})
	refused(t, s, 2, "log.segmnt.bytes", "log.segment.bytes")
	s = kit.New(t, t.TempDir(), map[string]string{"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"})
	refused(t, s, 2, "authorizer.class.name")
	s = kit.New(t, t.TempDir(), map[string]string{"num.replica.fetchers": "4"})
	s.MustStart()
	require.Contains(t, s.Log(), "num.replica.fetchers", "a known key without effect is one warning")
}

func TestReadyFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	s := kit.New(t, dir, map[string]string{"ready.file": filepath.Join(dir, "none", "ready.json")})
	refused(t, s, 2, "ready.file", filepath.Join(dir, "none"))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "the disk is untouched")
	s.Set("ready.file", filepath.Join(dir, "metadata", "ready.json"))
	s.MustStart()
}

func TestCheckConfigTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	s := kit.New(t, dir, nil)
	out, errOut, code := s.CLI("", append(s.Args(), "--check-config")...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "log.dirs")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	_, errOut, code = s.CLI("", "server", "--check-config", "--set", "num.replica.fetchers=4")
	require.Zero(t, code)
	require.Contains(t, errOut, "num.replica.fetchers has no effect")
	_, errOut, code = s.CLI("", "server", "--check-config", "--set", "controller.quorum.voters=1@localhost:1,2@localhost:2")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "more than one voter")
	_, errOut, code = s.CLI("", "server", "--check-config", "--set", "log.dirs=/d/a", "--set", "remote.store.url=file:///d/a/tier")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "lies in the log directory /d/a")
	_, _, code = s.CLI("", "server", "--check-config", "--set", "log.segment.bytes=banana")
	require.Equal(t, 2, code)
}

func TestReadyLineAndFile(t *testing.T) {
	s := kit.Start(t, nil)
	kit.Eventually(t, 5*time.Second, "the ready line", func() bool { return strings.Contains(s.Log(), "start_ms=") })
	require.Equal(t, 1, strings.Count(s.Log(), `msg="broker ready"`))
	for _, field := range []string{"node.id=1", "cluster.id=", "listeners=", "admin=", "data=", "tier=", "start_ms="} {
		require.Contains(t, s.Log(), field)
	}
	code, body := s.Get("/readyz")
	require.Equal(t, 200, code)
	var ready struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
		Tier    string   `json:"tier"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &ready), body)
	require.True(t, ready.Ready)
	code, _ = s.Get("/livez")
	require.Equal(t, 200, code)
	_, page := s.Get("/metrics")
	require.Contains(t, page, "strandline_build_info")
}

// TestOnlyLogDirectoryFailsAtTheStart: the last word is what failed.
func TestOnlyLogDirectoryFailsAtTheStart(t *testing.T) {
	s := kit.Start(t, nil)
	_, errOut, code := s.CLI("hello\n", "produce", "t")
	require.Zero(t, code, errOut)
	require.Zero(t, s.Stop())
	index := filepath.Join(s.Dir, "logs", "t-0", "00000000000000000000.index")
	require.NoError(t, os.Remove(index))
	require.NoError(t, os.Mkdir(index, 0o700)) // reading it fails, as on a bad disk
	log := strings.TrimSpace(refused(t, s, 1))
	last := log[strings.LastIndexByte(log, '\n')+1:]
	require.Contains(t, last, "strandline: ")
	require.Contains(t, last, index)
	require.NotContains(t, last, "canceled")
}

// TestOnePartitionThatCannotBeOpened: what is damaged keeps neither the others
// from being served nor itself from being deleted; ready is said after that.
func TestOnePartitionThatCannotBeOpened(t *testing.T) {
	s := kit.Start(t, nil)
	for _, topic := range []string{"hurt", "well"} {
		_, errOut, code := s.CLI("hello\nworld\n", "produce", topic)
		require.Zero(t, code, errOut)
	}
	require.Zero(t, s.Stop())
	name := filepath.Join(s.Dir, "logs", "hurt-0", "00000000000000000000")
	log, err := os.ReadFile(name + ".log")
	require.NoError(t, err)
	log[16] = 9 // the format of the first batch
	require.NoError(t, os.WriteFile(name+".log", log, 0o600))
	require.NoError(t, os.Remove(name+".index"))

	s.Set("listeners", "PLAINTEXT://"+s.Addr)
	s.Set("admin.listeners", s.Admin)
	s.Spawn()
	kit.Eventually(t, 20*time.Second, "clients are served", func() bool { return strings.Contains(s.Log(), "clients are served, but") })
	code, body := s.Get("/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "hurt-0 is offline")
	require.Contains(t, s.Log(), "remedy=")
	_, errOut, code := s.CLI("again\n", "produce", "well")
	require.Zero(t, code, errOut)
	out, errOut, code := s.CLI("", "consume", "well", "--exit-at-end")
	require.Zero(t, code, errOut)
	require.Equal(t, "hello\nworld\nagain\n", out)
	raw := kit.Dial(t, s.Addr)
	defer raw.Close()
	fetched := raw.Call(kit.Fetch(12, "hurt", 0, 0, 1000)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	require.Equal(t, kerr.KafkaStorageError.Code, fetched.ErrorCode)
	require.NotContains(t, s.Log(), "broker ready")

	_, errOut, code = s.CLI("", "topic", "delete", "hurt")
	require.Zero(t, code, errOut)
	require.NoError(t, s.AwaitReady(20*time.Second))
	code, _ = s.Get("/readyz")
	require.Equal(t, 200, code)
	require.Equal(t, 1, strings.Count(s.Log(), "broker ready"))
	require.Zero(t, s.Stop())
}

func TestProduceAndConsumeFromTheCommandLine(t *testing.T) {
	s := kit.Start(t, nil)
	_, errOut, code := s.CLI("", "topic", "create", "greetings", "--partitions", "1")
	require.Zero(t, code, errOut)
	_, errOut, code = s.CLI("hello\nworld\n", "produce", "greetings")
	require.Zero(t, code, errOut)
	require.Equal(t, "produced 2 records", strings.TrimSpace(errOut))
	out, errOut, code := s.CLI("", "consume", "greetings", "--exit-at-end")
	require.Zero(t, code, errOut)
	require.Equal(t, "hello\nworld\n", out)
	_, errOut, code = s.CLI("", "consume", "nothing-there", "--exit-at-end")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "UNKNOWN_TOPIC_OR_PARTITION")
	_, _, code = s.CLI("", "topic", "create")
	require.Equal(t, 2, code)
	_, errOut, code = s.CLI("", "topic", "create", "greetings")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "TOPIC_ALREADY_EXISTS")
	out, errOut, code = s.CLI("", "topic", "describe", "greetings", "--admin", s.Admin)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "active segment seals")
}

// TestTermWithTheStoreHanging stops a server whose object store accepts
// connections and never answers.
func TestTermWithTheStoreHanging(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	s := kit.Start(t, map[string]string{
		"remote.store.url": "s3://bucket/prefix", "remote.store.endpoint": "http://" + ln.Addr().String(),
		"remote.store.access.key.id": "a", "remote.store.secret.access.key": "b", "remote.store.region": "us-east-1",
		"remote.log.manager.task.interval.ms": "100", "log.initial.task.delay.ms": "100",
	})
	_, errOut, code := s.CLI("hello\n", "produce", "t")
	require.Zero(t, code, errOut)
	start := time.Now()
	require.Zero(t, s.Stop(), s.Log())
	require.Less(t, time.Since(start), 10*time.Second)
}

func TestStoreThatRefusesAtStart(t *testing.T) {
	m := kit.StartMinIO(t, "strandline")
	for name, set := range map[string]map[string]string{
		"bucket":   {"remote.store.url": "s3://no-such-bucket/x"},
		"key":      {"remote.store.secret.access.key": "wrong-secret"},
		"endpoint": {"remote.store.endpoint": "http://127.0.0.1:1"},
		"folder":   {"remote.store.url": "file:///proc/no/folder"},
	} {
		t.Run(name, func(t *testing.T) {
			all := m.Properties("x")
			for k, v := range set {
				all[k] = v
			}
			all["remote.store.request.timeout.ms"] = "2000"
			s := kit.Start(t, all)
			kit.Eventually(t, 15*time.Second, "degraded is said", func() bool {
				code, body := s.Get("/readyz")
				return code == 200 && strings.Contains(body, `"tier":"degraded"`)
			})
			kit.Eventually(t, 5*time.Second, "one ERROR says what is wrong", func() bool {
				return strings.Contains(s.Log(), "level=ERROR")
			})
			_, errOut, code := s.CLI("hello\n", "produce", "t")
			require.Zero(t, code, errOut)
			require.Zero(t, s.Stop())
		})
	}
}
