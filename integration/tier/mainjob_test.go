package tier

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
	"strandline/metadata/cluster"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// size is the scale of the main job: the full form, or the short one.
type size struct {
	totalBytes, segmentBytes, localBytes, cacheBytes, diskLimit int64
}

func mainJobSize() size {
	if kit.Long() {
		return size{2 << 30, 16 << 20, 64 << 20, 16 << 20, 128 << 20}
	}
	return size{256 << 20, 4 << 20, 16 << 20, 16 << 20, 56 << 20}
}

// line is one record value: printable, so that every tool can carry it.
func line(r *rand.Rand) []byte {
	n := 100 + r.IntN(4000)
	switch r.IntN(40) {
	case 0:
		n = 1_000_000
	case 1, 2, 3:
		n = 50_000 + r.IntN(100_000)
	}
	if r.IntN(2) == 0 { // compressible
		word := []byte(strconv.FormatUint(r.Uint64(), 36) + " ")
		return bytes.Repeat(word, n/len(word)+1)[:n]
	}
	raw := make([]byte, n*3/4+3)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return []byte(base64.StdEncoding.EncodeToString(raw))[:n]
}

// load writes values of about total bytes to each partition in turns, by kcat
// with four codecs and by franz-go with lz4, and returns what was written.
func load(t *testing.T, s *kit.Server, topic string, partitions int, total int64) []digest {
	t.Helper()
	hashes, counts := make([]hash.Hash, partitions), make([]int, partitions)
	for p := range partitions {
		hashes[p] = sha256.New()
	}
	r := rand.New(rand.NewPCG(7, uint64(partitions)))
	writers := []string{"none", "gzip", "snappy", "zstd", "lz4"}
	round := total / int64(partitions*10)
	for sent, turn := int64(0), 0; sent < total; turn++ {
		var lines bytes.Buffer
		for int64(lines.Len()) < round {
			lines.Write(line(r))
			lines.WriteByte('\n')
		}
		partition := turn % partitions
		codec := writers[(turn/partitions+turn)%len(writers)]
		if codec == "lz4" {
			produceLZ4(t, s.Addr, topic, int32(partition), lines.Bytes())
		} else {
			_, errOut, code := kit.Kcat(t, lines.String(), "-b", s.Addr, "-P", "-t", topic, "-p", strconv.Itoa(partition),
				"-z", codec, "-X", "message.max.bytes=2000000", "-X", "enable.idempotence=true", "-X", "batch.size=900000")
			require.Zero(t, code, errOut)
		}
		sent += int64(lines.Len())
		counts[partition] += bytes.Count(lines.Bytes(), []byte("\n"))
		hashes[partition].Write(lines.Bytes())
	}
	written := make([]digest, partitions)
	for p := range partitions {
		written[p] = digest{counts[p], hex.EncodeToString(hashes[p].Sum(nil))}
	}
	return written
}

func produceLZ4(t *testing.T, addr, topic string, partition int32, lines []byte) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1_040_000))
	require.NoError(t, err)
	defer cl.Close()
	for l := range bytes.SplitSeq(bytes.TrimSuffix(lines, []byte("\n")), []byte("\n")) {
		cl.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: l}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, cl.Flush(t.Context()))
}

type digest struct {
	records int
	sum     string
}

func franzDigest(t *testing.T, addr, topic string, partition int32, end int64) digest {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.FetchMaxPartitionBytes(4<<20),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(0)}}))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	h, next := sha256.New(), int64(0)
	for next < end {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		for _, e := range fetches.Errors() {
			require.NoError(t, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, next, r.Offset)
			next++
			h.Write(r.Value)
			h.Write([]byte{'\n'})
		})
	}
	return digest{int(next), hex.EncodeToString(h.Sum(nil))}
}

func digestLines(s string) digest {
	return digest{strings.Count(s, "\n"), hex.EncodeToString(func() []byte { h := sha256.Sum256([]byte(s)); return h[:] }())}
}

func kcatDigest(t *testing.T, addr, topic string, partition int32) digest {
	t.Helper()
	out, errOut, code := kit.Kcat(t, "", "-b", addr, "-C", "-t", topic, "-p", fmt.Sprint(partition), "-o", "beginning", "-e", "-q", "-X", "check.crcs=true")
	require.Zero(t, code, errOut)
	return digestLines(out)
}

func javaDigest(t *testing.T, addr, topic string, partition int32, count int64) digest {
	t.Helper()
	out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", addr,
		"--topic", topic, "--partition", fmt.Sprint(partition), "--offset", "earliest", "--max-messages", fmt.Sprint(count), "--timeout-ms", "60000")
	require.Zero(t, code, errOut)
	return digestLines(out)
}

// listOffset asks for one of the special offsets of ListOffsets.
func listOffset(t *testing.T, addr, topic string, partition int32, timestamp int64) int64 {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer cl.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	p := resp.Topics[0].Partitions[0]
	require.Zero(t, p.ErrorCode)
	return p.Offset
}

func createTopic(t *testing.T, addr, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer cl.Close()
	m := map[string]*string{}
	for k, v := range configs {
		m[k] = &v
	}
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, m, topic)
	require.NoError(t, err)
}

// diskBytes is `du -sb` of folders.
func diskBytes(t *testing.T, dirs ...string) int64 {
	t.Helper()
	total := int64(0)
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // removed while walking
			}
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
			return nil
		})
		require.NoError(t, err)
	}
	return total
}

type tierStatus struct {
	Store struct {
		OK        bool   `json:"ok"`
		LastError string `json:"lastError"`
	} `json:"store"`
	Partitions []struct {
		Topic            string `json:"topic"`
		Partition        int32  `json:"partition"`
		LocalStartOffset int64  `json:"localStartOffset"`
		RemoteEndOffset  int64  `json:"remoteEndOffset"`
		LogEndOffset     int64  `json:"logEndOffset"`
		LocalBytes       int64  `json:"localBytes"`
		RemoteBytes      int64  `json:"remoteBytes"`
		PendingSegments  int64  `json:"pendingSegments"`
		LastError        string `json:"lastError"`
	} `json:"partitions"`
}

func status(t *testing.T, s *kit.Server) tierStatus {
	t.Helper()
	out, errOut, code := s.CLI("", "tier", "status", "--admin", s.Admin, "-o", "json")
	require.Zero(t, code, errOut)
	var st tierStatus
	require.NoError(t, json.Unmarshal([]byte(out), &st))
	return st
}

// catalogKeys is what `tier ls` says is live.
func catalogKeys(t *testing.T, s *kit.Server) []string {
	t.Helper()
	out, errOut, code := s.CLI("", "tier", "ls", "--admin", s.Admin, "-o", "json")
	require.Zero(t, code, errOut)
	var keys []string
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		var seg struct{ Key, State string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &seg))
		if seg.State == "live" {
			keys = append(keys, seg.Key)
		}
	}
	sort.Strings(keys)
	return keys
}

func remoteBytes(t *testing.T, s *kit.Server) (total int64) {
	t.Helper()
	for _, p := range status(t, s).Partitions {
		total += p.RemoteBytes
	}
	return total
}

func topicID(t *testing.T, s *kit.Server, topic string) string {
	t.Helper()
	out, errOut, code := s.CLI("", "topic", "describe", topic, "--admin", s.Admin, "-o", "json")
	require.Zero(t, code, errOut)
	var d struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	return d.ID
}

// mainJob writes more than the local disk may keep, sees it leave, and reads all of
// it back, also after a restart with the cache wiped.
func mainJob(t *testing.T, b bucket, sz size, partitions int) {
	set := maps.Clone(b.set)
	maps.Copy(set, map[string]string{
		"remote.cache.size.bytes":             fmt.Sprint(sz.cacheBytes),
		"log.retention.check.interval.ms":     "500",
		"remote.log.manager.task.interval.ms": "500",
		"log.segment.delete.delay.ms":         "100",
		"log.initial.task.delay.ms":           "100",
		"remote.manifest.interval.ms":         "500",
	})
	s := kit.Start(t, set)
	createTopic(t, s.Addr, "tiered", int32(partitions), map[string]string{
		"segment.bytes":         fmt.Sprint(max(1<<20, sz.segmentBytes/int64(partitions))), // each keeps one that is not full yet
		"local.retention.bytes": fmt.Sprint(sz.localBytes / int64(partitions)),
	})
	want := load(t, s, "tiered", partitions, sz.totalBytes)
	dirs := []string{filepath.Join(s.Dir, "logs"), filepath.Join(s.Dir, "metadata"), filepath.Join(s.Dir, "cache")}
	t.Cleanup(func() {
		if t.Failed() {
			for _, dir := range dirs {
				t.Logf("%s: %d bytes", dir, diskBytes(t, dir))
			}
		}
	})
	kit.Eventually(t, 3*time.Minute, "every sealed segment is in the tier", func() bool {
		for _, p := range status(t, s).Partitions {
			if p.PendingSegments > 0 {
				return false
			}
		}
		return true
	})
	kit.Eventually(t, time.Minute, "the tier frees the disk", func() bool { return diskBytes(t, dirs...) < sz.diskLimit })
	for p := range partitions {
		checkPartition(t, s, int32(p), want[p])
	}
	require.Less(t, diskBytes(t, dirs...), sz.diskLimit, "the cache kept its limit")
	got := s.Metric("strandline_remote_bytes_total", `verb="get"`)
	require.GreaterOrEqual(t, got, 0.9*float64(remoteBytes(t, s)), "reads came from the store")
	if sz.totalBytes >= 2<<30 {
		require.GreaterOrEqual(t, got, 1.8*float64(1<<30))
	}
	id, err := cluster.ParseUUID(topicID(t, s, "tiered"))
	require.NoError(t, err)
	kit.Eventually(t, 30*time.Second, "bucket, catalog and manifests agree", func() bool {
		keys := catalogKeys(t, s)
		return slices.Equal(keys, b.segmentKeys()) && slices.Equal(keys, b.manifestKeys(t, s.Ready.ClusterID, cluster.TopicID(id), partitions))
	})

	require.Zero(t, s.Stop())
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "cache")))
	s.MustStart()
	for p := range partitions {
		require.Zero(t, listOffset(t, s.Addr, "tiered", int32(p), -2))
		end := listOffset(t, s.Addr, "tiered", int32(p), -1)
		require.Equal(t, want[p], franzDigest(t, s.Addr, "tiered", int32(p), end), "after a restart with the cache wiped")
	}
}

// checkPartition reads a partition from 0 with three clients and compares what
// they saw with what was written.
func checkPartition(t *testing.T, s *kit.Server, partition int32, want digest) {
	t.Helper()
	require.Positive(t, listOffset(t, s.Addr, "tiered", partition, -4), "the local log start moved")
	require.Zero(t, listOffset(t, s.Addr, "tiered", partition, -2))
	end := listOffset(t, s.Addr, "tiered", partition, -1)
	require.Equal(t, want, franzDigest(t, s.Addr, "tiered", partition, end), "franz-go")
	require.Equal(t, want, kcatDigest(t, s.Addr, "tiered", partition), "kcat")
	require.Equal(t, want, javaDigest(t, s.Addr, "tiered", partition, end), "Java")
}

func TestMainJobOnePartition(t *testing.T) { mainJob(t, minioBucket(t), mainJobSize(), 1) }

func TestMainJobEightPartitions(t *testing.T) { mainJob(t, minioBucket(t), mainJobSize(), 8) }

// TestMainJobOnVersity is the same on a versitygw, with each driver.
func TestMainJobOnVersity(t *testing.T) {
	sz := size{totalBytes: 64 << 20, segmentBytes: 2 << 20, localBytes: 8 << 20, cacheBytes: 16 << 20, diskLimit: 48 << 20}
	if kit.Long() {
		sz = mainJobSize()
	}
	for _, driver := range []string{"aws", "minio"} {
		t.Run(driver, func(t *testing.T) { mainJob(t, versityBucket(t, driver), sz, 2) })
	}
}
