package samples

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// Expected is what a client sees of a sample.
type Expected struct {
	Topics map[string]Topic `json:"topics"`
	Groups map[string]Group `json:"groups,omitempty"`
}

// Topic is what a client sees of a topic.
type Topic struct {
	ID         string            `json:"id"`
	Configs    map[string]string `json:"configs"` // those that the topic sets itself
	Partitions []Partition       `json:"partitions"`
}

// Partition is what a client reads from a partition. Of a compacted topic that is
// the last record of each key, where it has a value: the others may go at any time.
type Partition struct {
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
	Records int    `json:"records"`
	SHA256  string `json:"sha256"` // of offset, timestamp, key, value and headers of each record
}

func (t Topic) compacted() bool { return strings.Contains(t.Configs["cleanup.policy"], "compact") }

func settings(dir string) map[string]string {
	return map[string]string{
		"log.dirs":                            "./a,./b",
		"metadata.log.dir":                    "./metadata",
		"remote.cache.dir":                    "./cache",
		"remote.store.url":                    "file://" + filepath.Join(dir, "bucket"),
		"log.retention.check.interval.ms":     "100",
		"log.initial.task.delay.ms":           "100",
		"log.segment.delete.delay.ms":         "100",
		"remote.log.manager.task.interval.ms": "100",
		"remote.manifest.interval.ms":         "200",
		"log.cleaner.backoff.ms":              "100",
		"offsets.topic.num.partitions":        "3",
		"offsets.topic.segment.bytes":         "2048",
		// Members are still there when a sample is opened.
		"group.consumer.max.session.timeout.ms": "3600000",
		"group.consumer.session.timeout.ms":     "3600000",
	}
}

// TestOpenSamples opens each sample with this build: everything that was in it
// is read back, it takes writes, they are there after a restart, and its tier
// goes on from where it was.
func TestOpenSamples(t *testing.T) {
	expectations, err := filepath.Glob("testdata/*/expected.json")
	require.NoError(t, err)
	require.NotEmpty(t, expectations)
	for _, file := range expectations {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) { open(t, filepath.Dir(file)) })
	}
}

func open(t *testing.T, sample string) {
	var want Expected
	text, err := os.ReadFile(filepath.Join(sample, "expected.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	dir := t.TempDir()
	unpack(t, filepath.Join(sample, "data.tar.gz"), dir)

	s := kit.New(t, dir, settings(dir))
	s.MustStart()
	require.Equal(t, want, observe(t, s.Addr))

	cl := client(t, s.Addr, kgo.ProducerBatchCompression(kgo.NoCompression()))
	for topic, seen := range want.Topics {
		for p := range seen.Partitions {
			for i := range 20 {
				rec := &kgo.Record{Topic: topic, Partition: int32(p), Key: []byte("after"), Value: fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 2000))}
				require.NoError(t, cl.ProduceSync(t.Context(), rec).FirstErr())
			}
		}
	}
	commit(t, cl, "after", nil, kadm.Offset{Topic: "local", Partition: 1, At: 12, LeaderEpoch: -1, Metadata: "new"})
	before := observe(t, s.Addr)
	for topic, seen := range want.Topics {
		more := 20
		if seen.compacted() {
			more = 1
		}
		for p := range seen.Partitions {
			require.Equal(t, seen.Partitions[p].Records+more, before.Topics[topic].Partitions[p].Records, "%s-%d", topic, p)
		}
	}
	require.Equal(t, Offset{12, -1, "new"}, before.Groups["after"].Offsets["local-1"])
	kit.Eventually(t, 20*time.Second, "what has sealed since leaves for the tier", func() bool {
		var status struct {
			Partitions []struct {
				Topic           string
				RemoteEndOffset int64
				PendingSegments int
			}
		}
		out, _, code := s.CLI("", "tier", "status", "tiered", "-o", "json", "--admin", s.Admin)
		return code == 0 && json.Unmarshal([]byte(out), &status) == nil && len(status.Partitions) == 1 &&
			status.Partitions[0].PendingSegments == 0 && status.Partitions[0].RemoteEndOffset > want.Topics["tiered"].Partitions[0].End
	})
	s.Restart(true)
	require.Equal(t, before, observe(t, s.Addr))
	membersGoOn(t, s.Addr, want)
}

// TestMakeSample writes the samples of this build: one after an orderly stop
// and one after kill -9.
func TestMakeSample(t *testing.T) {
	name := os.Getenv("SAMPLE")
	if name == "" {
		name = "now"
	}
	root := "testdata"
	if name == "now" { // the way to make one must keep working
		root = t.TempDir()
	}
	for _, end := range []string{"stopped", "killed"} {
		dir := t.TempDir()
		s := kit.New(t, dir, settings(dir))
		s.MustStart()
		fill(t, s)
		fillKeys(t, s)
		fillGroups(t, s)
		seen := observe(t, s.Addr)
		if end == "killed" {
			s.Kill()
		} else {
			require.Zero(t, s.Stop())
		}
		sample := filepath.Join(root, name+"-"+end)
		require.NoError(t, os.MkdirAll(sample, 0o755))
		text, err := json.MarshalIndent(seen, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(sample, "expected.json"), append(text, '\n'), 0o644))
		pack(t, dir, filepath.Join(sample, "data.tar.gz"), "a", "b", "metadata", "bucket")
		open(t, sample)
	}
}

// fill makes topics with every codec, headers and nulls, idle and idempotent
// producers, a log start inside a remote segment, changed configs, deleted and
// made again topics.
func fill(t *testing.T, s *kit.Server) {
	ctx := t.Context()
	adm := kadm.NewClient(client(t, s.Addr))
	create := func(topic string, partitions int32, configs map[string]*string) {
		_, err := adm.CreateTopic(ctx, partitions, 1, configs, topic)
		require.NoError(t, err)
	}
	val := kadm.StringPtr
	forever := "retention.ms" // the records keep their stamps, whenever the sample is opened
	create("local", 2, map[string]*string{forever: val("-1"), "remote.storage.enable": val("false"), "internal.segment.bytes": val("30000"), "index.interval.bytes": val("1000")})
	create("tiered", 1, map[string]*string{forever: val("-1"), "internal.segment.bytes": val("20000"), "local.retention.bytes": val("30000")})
	create("stamped", 1, map[string]*string{forever: val("-1"), "message.timestamp.type": val("LogAppendTime"), "remote.storage.enable": val("false")})
	for range 2 {
		create("again", 1, map[string]*string{forever: val("-1")})
		produce(t, s.Addr, "again", 1, 30)
		_, err := adm.DeleteTopic(ctx, "again")
		require.NoError(t, err)
	}
	create("again", 1, map[string]*string{forever: val("-1")})
	produce(t, s.Addr, "again", 1, 10)
	produce(t, s.Addr, "local", 2, 600)
	produce(t, s.Addr, "tiered", 1, 1500)
	produce(t, s.Addr, "stamped", 1, 50)
	_, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.bytes", Value: val("100000000")}}, "local", "tiered", "stamped", "again")
	require.NoError(t, err)
	kit.Eventually(t, 20*time.Second, "segments leave the disk", func() bool {
		starts, err := adm.ListStartOffsets(ctx, "tiered")
		return err == nil && starts["tiered"][0].Offset == 0 && s.Metric("strandline_remote_pending_bytes") == 0 && localStart(t, s) > 600
	})
	var trim kadm.Offsets
	trim.AddOffset("tiered", 0, 333, -1)
	trim.AddOffset("local", 1, 7, -1)
	_, err = adm.DeleteRecords(ctx, trim)
	require.NoError(t, err)
}

func localStart(t *testing.T, s *kit.Server) int64 {
	var status struct {
		Partitions []struct{ LocalStartOffset int64 }
	}
	out, errOut, code := s.CLI("", "tier", "status", "tiered", "-o", "json", "--admin", s.Admin)
	require.Zero(t, code, errOut)
	require.NoError(t, json.Unmarshal([]byte(out), &status))
	if len(status.Partitions) == 0 {
		return -1
	}
	return status.Partitions[0].LocalStartOffset
}

// produce writes n records a codec to the partitions in turn.
func produce(t *testing.T, addr, topic string, partitions, n int) {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for c, codec := range codecs {
		opts := []kgo.Opt{kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(4000)}
		if c%2 == 1 {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
		cl := client(t, addr, opts...)
		for i := range n / len(codecs) {
			sum := sha256.Sum256([]byte{byte(c), byte(i), byte(i >> 8)})
			rec := &kgo.Record{
				Topic: topic, Partition: int32(i % partitions), Key: fmt.Appendf(nil, "%s-%d", topic, i), Timestamp: time.UnixMilli(1_790_000_000_000 + int64(i)),
				Value: fmt.Appendf(nil, "%d:%d:%s", c, i, strings.Repeat(hex.EncodeToString(sum[:]), 1+i%4)),
			}
			switch i % 5 {
			case 1:
				rec.Key = nil
			case 2:
				rec.Value = nil
			case 3:
				rec.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte{0, 1, byte(i)}}, {Key: "empty", Value: []byte{}}}
			}
			cl.Produce(t.Context(), rec, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("%s: %v", topic, err)
				}
			})
		}
		require.NoError(t, cl.Flush(t.Context()))
	}
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// observe reads everything that a client can see.
func observe(t *testing.T, addr string) Expected {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := kadm.NewClient(client(t, addr))
	topics, err := adm.ListTopics(ctx)
	require.NoError(t, err)
	starts, err := adm.ListStartOffsets(ctx)
	require.NoError(t, err)
	ends, err := adm.ListEndOffsets(ctx)
	require.NoError(t, err)
	configs, err := adm.DescribeTopicConfigs(ctx, topics.Names()...)
	require.NoError(t, err)
	seen := Expected{Topics: map[string]Topic{}}
	for name, detail := range topics {
		topic := Topic{ID: detail.ID.String(), Configs: map[string]string{}}
		rc, err := configs.On(name, nil)
		require.NoError(t, err)
		for _, c := range rc.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				topic.Configs[c.Key] = c.MaybeValue()
			}
		}
		for p := range int32(len(detail.Partitions)) {
			all := read(ctx, t, addr, name, p, starts[name][p].Offset, ends[name][p].Offset)
			if topic.compacted() {
				all = latest(all)
			}
			topic.Partitions = append(topic.Partitions, summed(all, starts[name][p].Offset, ends[name][p].Offset))
		}
		seen.Topics[name] = topic
	}
	seen.Groups = observeGroups(ctx, t, addr)
	return seen
}

// read returns all records of a partition.
func read(ctx context.Context, t *testing.T, addr, topic string, p int32, start, end int64) (records []*kgo.Record) {
	t.Helper()
	cl := client(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(start)}}))
	for at := start; at < end; {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			require.GreaterOrEqual(t, r.Offset, at)
			at = r.Offset + 1
			records = append(records, r)
		})
	}
	return records
}

// latest are the last records of their keys that have a value.
func latest(records []*kgo.Record) []*kgo.Record {
	last := map[string]*kgo.Record{}
	for _, r := range records {
		last[string(r.Key)] = r
	}
	return slices.DeleteFunc(records, func(r *kgo.Record) bool { return r != last[string(r.Key)] || r.Value == nil })
}

func summed(records []*kgo.Record, start, end int64) Partition {
	h := sha256.New()
	for _, r := range records {
		var head [16]byte
		binary.BigEndian.PutUint64(head[:], uint64(r.Offset))
		binary.BigEndian.PutUint64(head[8:], uint64(r.Timestamp.UnixMilli()))
		h.Write(head[:])
		fmt.Fprintf(h, "%t%q%t%q", r.Key == nil, r.Key, r.Value == nil, r.Value)
		for _, hd := range r.Headers {
			fmt.Fprintf(h, "%q%q", hd.Key, hd.Value)
		}
	}
	return Partition{start, end, len(records), hex.EncodeToString(h.Sum(nil))}
}

func pack(t *testing.T, dir, file string, names ...string) {
	t.Helper()
	found := map[string]fs.FileInfo{}
	for _, name := range names {
		require.NoError(t, filepath.Walk(filepath.Join(dir, name), func(path string, info fs.FileInfo, err error) error {
			rel, relErr := filepath.Rel(dir, path)
			found[rel] = info
			return errors.Join(err, relErr)
		}))
	}
	out, err := os.Create(file)
	require.NoError(t, err)
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	require.NoError(t, err)
	w := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		info := found[name]
		if info.IsDir() {
			require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}))
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(b)), ModTime: info.ModTime()}))
		_, err = w.Write(b)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	require.NoError(t, out.Close())
}

func unpack(t *testing.T, file, dir string) {
	t.Helper()
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	zip, err := gzip.NewReader(in)
	require.NoError(t, err)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, 0o644))
		require.NoError(t, os.Chtimes(path, h.ModTime, h.ModTime))
	}
}
