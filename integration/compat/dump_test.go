package compat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// kafkaDump runs Apache Kafka's dump-log over files of every kind, and returns
// what it says of each file's batches, without what only Kafka says of them.
func kafkaDump(t *testing.T, files []string) map[string][]string {
	t.Helper()
	out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", strings.Join(files, ","))
	require.Zero(t, code, errOut)
	for _, bad := range []string{"mismatch", "Mismatch", "corrupt", "Corrupt", "isvalid: false", "out of order", "Exception"} {
		require.NotContains(t, out+errOut, bad)
	}
	batches, file := map[string][]string{}, ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "Dumping "); ok {
			file = filepath.Base(name)
			batches[file] = nil
		}
		if strings.HasPrefix(line, "baseOffset:") {
			line = strings.Replace(line, " deleteHorizonMs: OptionalLong.empty", "", 1)
			batches[file] = append(batches[file], strings.TrimSuffix(line, " isvalid: true"))
		}
	}
	require.Len(t, batches, len(files))
	return batches
}

// Both dumps say the same of segments that were rolled, recovered after a kill,
// restarted in order, and written by several idempotent producers.
func TestDumpsAgreeOnOurSegments(t *testing.T) {
	s := kit.Start(t, nil)
	_, errOut, code := s.CLI("", "topic", "create", "d", "--config", "internal.segment.bytes=40000", "--config", "index.interval.bytes=1000")
	require.Zero(t, code, errOut)
	produce := func(codec string, idempotent string) {
		kcat(t, s, numbered(codec, 1500), "-P", "-t", "d", "-p", "0", "-z", codec, "-X", "enable.idempotence="+idempotent, "-X", "batch.num.messages=50")
	}
	produce("none", "true")
	produce("gzip", "true")
	s.Restart(true)
	produce("snappy", "true")
	s.Restart(false)
	produce("zstd", "false")
	produce("none", "true")
	require.Zero(t, s.Stop())

	dir := filepath.Join(s.Dir, "logs", "d-0")
	var files []string
	for _, suffix := range []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"} {
		found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		require.NoError(t, err)
		files = append(files, found...)
	}
	logs := mustGlob(t, filepath.Join(dir, "*.log"))
	require.Greater(t, len(logs), 3, "rolled")
	require.NotEmpty(t, mustGlob(t, filepath.Join(dir, "*.snapshot")))
	theirs := kafkaDump(t, files)
	for _, file := range logs {
		require.NotEmpty(t, theirs[filepath.Base(file)])
		require.Equal(t, theirs[filepath.Base(file)], dumpedBatches(t, s, file), file)
	}
}

// The same of segments that Apache Kafka wrote.
func TestDumpsAgreeOnKafkasSegments(t *testing.T) {
	s := kit.New(t, t.TempDir(), nil)
	dir := t.TempDir() // Kafka's tool opens indexes for writing
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../broker/segment/testdata/kafka-4.4.0-transactions")))
	logs := mustGlob(t, filepath.Join(dir, "*.log"))
	require.Len(t, logs, 3)
	files := append(logs, mustGlob(t, filepath.Join(dir, "*.txnindex"))...)
	files = append(files, mustGlob(t, filepath.Join(dir, "*.snapshot"))...)
	theirs := kafkaDump(t, files)
	for _, file := range logs {
		require.Equal(t, theirs[filepath.Base(file)], dumpedBatches(t, s, file), file)
	}
	for _, file := range append(mustGlob(t, filepath.Join(dir, "*.*index")), files...) {
		_, errOut, code := s.CLI("", "segment", "dump", "--deep", file)
		require.Zero(t, code, errOut)
	}
}
