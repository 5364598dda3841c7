package conformance

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// shell is a server with a person in front of it.
type shell struct {
	*kit.Server
	t *testing.T
}

// does runs a command that must succeed and returns its standard output.
func (s shell) does(stdin string, args ...string) string {
	s.t.Helper()
	out, errOut, code := s.CLI(stdin, args...)
	require.Zero(s.t, code, "%v: %s", args, errOut)
	return out
}

// fails runs a command that must end with code and say each of the words.
func (s shell) fails(code int, stdin string, args []string, words ...string) {
	s.t.Helper()
	out, errOut, got := s.CLI(stdin, args...)
	require.Equal(s.t, code, got, "%v: %s", args, errOut)
	require.Empty(s.t, out, "%v: data only", args)
	for _, w := range words {
		require.Contains(s.t, errOut, w, "%v", args)
	}
	require.NotContains(s.t, errOut, "<nil>")
	require.NotContains(s.t, errOut, "strconv")
}

func keysOf(t *testing.T, line string) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &m), line)
	return m
}

func lines(s string) []string {
	if s = strings.TrimSuffix(s, "\n"); s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// TestCommandLine checks what scripts rely on: outputs, JSON shapes, exit codes.
func TestCommandLine(t *testing.T) {
	tier := filepath.Join(t.TempDir(), "tier")
	server := kit.Start(t, map[string]string{
		"remote.store.url": "file://" + tier, "log.segment.bytes": "1048576", "log.roll.ms": "200",
		"remote.log.manager.task.interval.ms": "100", "remote.object.delete.delay.ms": "100", "log.initial.task.delay.ms": "100",
	})
	t.Run("version", func(t *testing.T) {
		s := shell{server, t}
		v := keysOf(t, s.does("", "version", "-o", "json"))
		for _, k := range []string{"version", "commit", "go", "formats"} {
			require.Contains(t, v, k)
		}
	})
	t.Run("topics", func(t *testing.T) {
		s := shell{server, t}
		made := keysOf(t, s.does("", "topic", "create", "a", "--partitions", "2", "--config", "retention.ms=3600000", "-o", "json"))
		require.Equal(t, "created topic b with 1 partition\n", s.does("", "topic", "create", "b"))
		require.Equal(t, "a\nb\n", s.does("", "topic", "list"))
		listed := lines(s.does("", "topic", "list", "-o", "json"))
		require.Len(t, listed, 2)
		described := keysOf(t, s.does("", "topic", "describe", "a", "--admin", s.Admin, "-o", "json"))
		require.Equal(t, described["id"], made["id"], "one spelling of an id, Kafka's")
		require.Equal(t, described["id"], keysOf(t, listed[0])["id"])
		s.does("", "topic", "alter", "a", "--partitions", "3", "--config", "retention.ms=7200000")
		text := s.does("", "topic", "describe", "a", "--admin", s.Admin)
		require.Regexp(t, `retention\.ms +7200000 +\(topic\)`, text)
		require.Contains(t, text, "partition 2 ")
		s.does("", "topic", "alter", "a", "--delete-config", "retention.ms")
		require.Regexp(t, `retention\.ms +604800000 +\(default\)`, s.does("", "topic", "describe", "a", "--admin", s.Admin))
	})
	t.Run("records", func(t *testing.T) {
		s := shell{server, t}
		_, errOut, code := s.CLI("k=v\nplain\n\xff\xfe\n", "produce", "b", "--partition", "0", "--key-separator", "=", "--acks", "1", "--compression", "zstd")
		require.Zero(t, code, errOut)
		require.Equal(t, "produced 3 records\n", errOut)
		out := lines(s.does("", "consume", "b", "--exit-at-end", "-o", "json"))
		require.Len(t, out, 3)
		first := keysOf(t, out[0])
		require.Equal(t, "k", first["key"])
		require.Equal(t, "v", first["value"])
		require.Equal(t, []any{}, first["headers"])
		require.Nil(t, keysOf(t, out[1])["key"])
		last := keysOf(t, out[2])
		require.Equal(t, "//4=", last["value"])
		require.Equal(t, true, last["valueBase64"])
		stamp, err := json.Marshal(int64(first["timestamp"].(float64)))
		require.NoError(t, err)
		require.Equal(t, "v\n", s.does("", "consume", "b", "--offset", "earliest", "--count", "1"))
		require.Equal(t, "plain\n", s.does("", "consume", "b", "--partition", "0", "--offset", "1", "--count", "1"))
		require.Equal(t, "v\n", s.does("", "consume", "b", "--offset", "@"+string(stamp), "--count", "1"))
		require.Empty(t, s.does("", "consume", "b", "--offset", "latest", "--exit-at-end"))
		require.Empty(t, s.does("", "consume", "b", "--offset", "@99999999999999", "--exit-at-end"))
	})
	t.Run("compacted topics", func(t *testing.T) {
		s := shell{server, t}
		s.does("", "topic", "create", "settings", "--config", "cleanup.policy=compact")
		s.fails(1, "plain\n", []string{"produce", "settings"}, "INVALID_RECORD", "compacted", "--key-separator")
		_, errOut, code := s.CLI("a=1\nb=\na=NULL\n", "produce", "settings", "--key-separator", "=", "--null-marker", "NULL")
		require.Zero(t, code, errOut)
		out := lines(s.does("", "consume", "settings", "--exit-at-end", "-o", "json"))
		require.Len(t, out, 3)
		require.Equal(t, "", keysOf(t, out[1])["value"], "empty, not null")
		require.Nil(t, keysOf(t, out[2])["value"], "a tombstone")
		require.Equal(t, "a=1\nb=\na=(none)\n", s.does("", "consume", "settings", "--exit-at-end", "--key-separator", "=", "--null-marker", "(none)"))
		require.Equal(t, "1\n\n\n", s.does("", "consume", "settings", "--exit-at-end"))
		text := s.does("", "topic", "describe", "settings", "--admin", s.Admin)
		require.Contains(t, text, "compaction: ")
		require.Regexp(t, `min\.cleanable\.dirty\.ratio +0\.5 +\(default\)`, text)
		require.NotContains(t, text, "retention.bytes", "what has no effect is left out")
	})
	t.Run("large records", func(t *testing.T) {
		s := shell{server, t}
		big := strings.Repeat("x", 3<<20)
		s.fails(1, big, []string{"produce", "b"}, "MESSAGE_TOO_LARGE", "max.message.bytes")
		s.does("", "topic", "create", "wide", "--config", "max.message.bytes=8388608", "--config", "segment.bytes=16777216")
		s.does(big, "produce", "wide")
		require.Len(t, s.does("", "consume", "wide", "--exit-at-end"), 3<<20+1)
	})
	t.Run("the tier", func(t *testing.T) {
		s := shell{server, t}
		kit.Eventually(t, 10*time.Second, "b is remote", func() bool {
			return len(lines(s.does("", "tier", "ls", "b", "--admin", s.Admin, "-o", "json"))) > 0
		})
		ls := keysOf(t, lines(s.does("", "tier", "ls", "b", "--admin", s.Admin, "-o", "json"))[0])
		for _, k := range []string{"topic", "partition", "baseOffset", "lastOffset", "bytes", "key", "state"} {
			require.Contains(t, ls, k)
		}
		require.Contains(t, s.does("", "tier", "ls", "--admin", s.Admin), ls["key"])
		status := keysOf(t, s.does("", "tier", "status", "b", "--admin", s.Admin, "-o", "json"))
		require.Contains(t, status["store"], "lastError")
		require.Contains(t, status["cache"], "limitBytes")
		p := status["partitions"].([]any)[0].(map[string]any)
		for _, k := range []string{
			"topic", "partition", "logStartOffset", "localStartOffset", "remoteEndOffset", "logEndOffset", "localBytes", "remoteBytes",
			"remoteSegments", "pendingSegments", "pendingBytes", "oldestPendingSeconds", "lastError",
		} {
			require.Contains(t, p, k)
		}
		require.Equal(t, "deleted topic b\n", s.does("", "topic", "delete", "b", "--wait", "--admin", s.Admin))
		require.NoFileExists(t, filepath.Join(tier, filepath.FromSlash(ls["key"].(string))), "--wait waits for the objects")
	})
	t.Run("mistakes", func(t *testing.T) { mistakes(shell{server, t}) })
	t.Run("a damaged segment", func(t *testing.T) {
		s := shell{server, t}
		dir := t.TempDir()
		file := filepath.Join(dir, "00000000000000000000.log")
		b := batch("one", "two")
		second := batch("three")
		recordbatch.Batch(second).SetBaseOffset(2)
		require.NoError(t, os.WriteFile(file, append(b, second...), 0o600))
		require.Len(t, lines(s.does("", "segment", "dump", file)), 2)
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		data[len(data)-1] ^= 1
		require.NoError(t, os.WriteFile(file, data, 0o600))
		_, errOut, code := s.CLI("", "segment", "dump", file)
		require.Equal(t, 1, code)
		require.Contains(t, errOut, file)
		require.Contains(t, errOut, "position "+itoa(len(b)))
	})
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// mistakes are what people do; each is answered with what to do instead.
func mistakes(s shell) {
	down := deadAddr(s.t)
	foreign := otherCluster(s.t)
	typo := filepath.Join(s.t.TempDir(), "typo.properties")
	require.NoError(s.t, os.WriteFile(typo, []byte("log.dirz=/x\n"), 0o600))
	s.does("", "topic", "create", "narrow", "--config", "max.message.bytes=8388608", "--config", "segment.bytes=1048576")
	for _, m := range []struct {
		code  int
		stdin string
		args  []string
		words []string
	}{
		{1, "", []string{"topic", "list", "-b", down, "--timeout", "2s"}, []string{down, "is it running?", "-b"}},
		{1, "x\n", []string{"produce", "t", "-b", down, "--timeout", "2s"}, []string{down, "is it running?"}},
		{1, "", []string{"tier", "status", "--admin", "http://" + down}, []string{"http://" + down, "--admin"}},
		{2, "", []string{"tier", "status", "--admin", down}, []string{"http://host:port"}},
		{2, "", []string{"topic", "list", "-b", "http://" + down}, []string{"host:port"}},
		{1, "", []string{"topic", "list", "-b", strings.TrimPrefix(s.Admin, "http://"), "--timeout", "1s"}, []string{"Kafka listener"}},
		{2, "", []string{"topic", "list", "--bootstrp", "x"}, []string{"--bootstrp", "--help"}},
		{2, "", []string{"topic", "lst"}, []string{"lst"}},
		{2, "", []string{"topic", "list", "-o", "xml"}, []string{"text or json"}},
		{2, "", []string{"topic", "create", "never", "-o", "xml"}, []string{"text or json"}},
		{2, "", []string{"topic", "delete", "a", "-o", "xml"}, []string{"text or json"}},
		{2, "x\n", []string{"produce", "never", "-o", "xml"}, []string{"text or json"}},
		{2, "", []string{"topic", "list", "--timeout", "0"}, []string{"above zero"}},
		{2, "", []string{"tier", "status", "a", "b"}, []string{"one topic name"}},
		{2, "x\n", []string{"produce", "a", "--partition", "-5"}, []string{"0 or more"}},
		{2, "", []string{"consume", "a", "--partition", "-5"}, []string{"0 or more"}},
		{2, "", []string{"consume", "a", "--count", "-1"}, []string{"no limit"}},
		{1, "", []string{"consume", "a", "--offset", "99"}, []string{"OFFSET_OUT_OF_RANGE", "--offset earliest"}},
		{1, strings.Repeat("x", 2<<20), []string{"produce", "narrow"}, []string{"RECORD_LIST_TOO_LARGE", "segment.bytes"}},
		{1, "", []string{"topic", "alter", "a", "--delete-config", "retention.mss"}, []string{"INVALID_CONFIG", "retention.mss"}},
		{1, "", []string{"topic", "describe", "a", "--admin", foreign}, []string{"--admin", "same cluster"}},
		{1, "", []string{"topic", "delete", "a", "--wait", "--admin", foreign}, []string{"--admin", "same cluster"}},
		{1, "", []string{"topic", "delete", "a", "--wait", "--admin", "http://" + down}, []string{"--admin"}},
		{1, "", []string{"topic", "create", "no spaces"}, []string{"INVALID_TOPIC_EXCEPTION: Topic name is invalid"}},
		{1, "", []string{"topic", "delete", "nowhere"}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "no topic nowhere", "topic list"}},
		{1, "", []string{"tier", "ls", "nowhere", "--admin", s.Admin}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "nowhere"}},
		{1, "", []string{"tier", "status", "nowhere", "--admin", s.Admin}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "nowhere"}},
		{1, "x\n", []string{"produce", "a", "--partition", "9"}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "3 partitions"}},
		{1, strings.Repeat("x", 65<<20), []string{"produce", "a"}, []string{"line 1 of standard input"}},
		{1, "", []string{"consume", "a", "--partition", "9", "--exit-at-end"}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "3 partitions"}},
		{1, "", []string{"consume", "nowhere"}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "no topic nowhere"}},
		{1, "", []string{"topic", "alter", "nowhere", "--config", "retention.ms=1"}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "no topic nowhere"}},
		{1, "", []string{"topic", "alter", "a", "--config", "clenup.policy=compact"}, []string{"INVALID_CONFIG", "did you mean cleanup.policy?"}},
		{1, "", []string{"topic", "alter", "a", "--delete-config", "clenup.policy"}, []string{"INVALID_CONFIG", "did you mean cleanup.policy?"}},
		{1, "", []string{"topic", "alter", "a", "--config", "cleanup.policy=compact"}, []string{"INVALID_CONFIG", "remote.storage.enable=false", "remote.log.delete.on.disable=true"}},
		{2, "", []string{"consume", "a", "--offset", "yesterday"}, []string{"@unix-ms"}},
		{2, "", []string{"topic", "alter", "a"}, []string{"nothing to change"}},
		{2, "", []string{"topic", "create", "never", "--partitions", "abc"}, []string{"--partitions abc: want a whole number;", "--help"}},
		{2, "", []string{"topic", "create", "never", "--partitions", "3000000000"}, []string{"--partitions 3000000000: want a whole number of at most 2147483647;"}},
		{2, "", []string{"topic", "create", "never", "--replication-factor", "40000"}, []string{"at most 32767"}},
		{2, "", []string{"consume", "a", "--count", "9223372036854775808"}, []string{"at most 9223372036854775807"}},
		{2, "", []string{"topic", "list", "--timeout", "30"}, []string{"--timeout 30: want a time with its unit, as in 30s;"}},
		{2, "", []string{"topic", "delete", "a", "--wait=perhaps"}, []string{"--wait perhaps: want true or false;"}},
		{1, "", []string{"segment", "dump", "nope.log"}, []string{"nope.log", "20 digits"}},
		{2, "", []string{"server", "--config", "nope.properties"}, []string{"nope.properties", "no such file"}},
		{2, "", []string{"server", "--config", "nope.txt"}, []string{".properties or .yaml"}},
		{2, "", []string{"server", "--set", "remote.store.url=s3:/bucket"}, []string{"s3://BUCKET/PREFIX"}},
		{2, "", []string{"server", "--set", "listeners=localhost:9092"}, []string{"NAME://host:port"}},
		{2, "", []string{"server", "--config", typo}, []string{"log.dirz", "log.dir?", "file " + typo}},
		{2, "", []string{"server", "--set", "listeners=SSL://localhost:0"}, []string{"only PLAINTEXT"}},
	} {
		s.fails(m.code, m.stdin, m.args, m.words...)
	}
	require.Equal(s.t, "a\nnarrow\nsettings\nwide\n", s.does("", "topic", "list"), "a refused command has done nothing")
}

// otherCluster is an admin listener that answers for a topic of the same name in
// another cluster.
func otherCluster(t *testing.T) string {
	t.Helper()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"topic":"a","id":"AAAAAAAAAAAAAAAAAAAAAQ"}`))
	}))
	t.Cleanup(other.Close)
	return other.URL
}

// deadAddr is an address on which nobody listens.
func deadAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

func TestPrecedenceOfSources(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.properties"), filepath.Join(dir, "b.yaml")
	require.NoError(t, os.WriteFile(first, []byte("log.segment.bytes=2000000\nlog.roll.ms=1000\n"), 0o600))
	require.NoError(t, os.WriteFile(second, []byte("log:\n  segment:\n    bytes: 3000000\nlisteners: [\"PLAINTEXT://localhost:0\"]\n"), 0o600))
	s := shell{kit.New(t, dir, nil), t}
	effective := func(args ...string) map[string]string {
		found := map[string]string{}
		for _, l := range lines(s.does("", append([]string{"server", "--check-config", "--config", first, "--config", second}, args...)...)) {
			k, v, _ := strings.Cut(l, "=")
			found[strings.TrimSpace(k)] = strings.Join(strings.Fields(v), " ")
		}
		return found
	}
	got := effective()
	require.Equal(t, "3000000 (file "+second+")", got["log.segment.bytes"])
	require.Equal(t, "1000 (file "+first+")", got["log.roll.ms"])
	require.Equal(t, "PLAINTEXT://localhost:0 (file "+second+")", got["listeners"])
	require.Equal(t, "1 (default)", got["node.id"])
	t.Setenv("STRANDLINE_LOG_SEGMENT_BYTES", "4000000")
	require.Equal(t, "4000000 (environment STRANDLINE_LOG_SEGMENT_BYTES)", effective()["log.segment.bytes"])
	require.Equal(t, "5000000 (--set)", effective("--set", "log.segment.bytes=5000000")["log.segment.bytes"])
	require.Equal(t, "/old (--set, as log.dir)", effective("--set", "log.dir=/old")["log.dirs"])
	t.Setenv("STRANDLINE_PORT_9092_TCP_ADDR", "10.0.0.1")
	t.Setenv("STRANDLINE_SERVICE_HOST", "10.0.0.1")
	require.Equal(t, "1 (default)", effective()["node.id"], "what Kubernetes says of a service with our name is no key")
	t.Setenv("STRANDLINE_LOG_DIRZ", "/x")
	s.fails(2, "", []string{"server", "--check-config"}, "log.dirz", "environment STRANDLINE_LOG_DIRZ")
}

func TestLogFormatJSON(t *testing.T) {
	s := kit.Start(t, map[string]string{"log.format": "json"})
	require.Zero(t, s.Stop())
	for _, l := range lines(s.Log()) {
		keysOf(t, l)
	}
	require.Contains(t, s.Log(), `"msg":"broker ready"`)
}
