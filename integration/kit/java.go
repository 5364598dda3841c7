package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// compiled has the class folders of the sources that were compiled.
var compiled struct {
	sync.Mutex
	dirs map[string]string
}

// clientJars are those of Apache Kafka's clients, without any that logs: a log
// costs more than all else at the start of a small program.
var clientJars = []string{"kafka-clients-*.jar", "slf4j-api-*.jar", "snappy-java-*.jar", "lz4-java-*.jar", "zstd-jni-*.jar"}

// JavaClass compiles a source file against Apache Kafka's clients, once a test
// process, and returns the arguments with which java runs the class of its name;
// the program's own come after them. jars are files that it needs besides.
func JavaClass(t testing.TB, source string, jars ...string) []string {
	t.Helper()
	libs := kafkaLibs(t)
	path := slices.Clone(jars)
	for _, pattern := range clientJars {
		found, err := filepath.Glob(filepath.Join(libs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		path = append(path, found...)
	}
	compiled.Lock()
	defer compiled.Unlock()
	dir, ok := compiled.dirs[source]
	if !ok {
		dir = compile(t, source, path)
	}
	class := strings.TrimSuffix(filepath.Base(source), ".java")
	return append(slices.Clone(javaFlags), "-cp", strings.Join(append(path, dir), ":"), class)
}

func compile(t testing.TB, source string, path []string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "strandline-java-")
	if err != nil {
		t.Fatal(err)
	}
	if compiled.dirs == nil {
		compiled.dirs = map[string]string{}
	}
	compiled.dirs[source] = dir
	if out, err := exec.Command(Tool(t, "javac"), "-proc:none", "-d", dir, "-cp", strings.Join(path, ":"), source).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return dir
}

// removeClasses deletes what JavaClass compiled.
func removeClasses() {
	compiled.Lock()
	defer compiled.Unlock()
	for _, dir := range compiled.dirs {
		_ = os.RemoveAll(dir)
	}
}

// KafkaStreams has the jars of Kafka Streams and of its store, which JavaClass
// takes besides those of the clients.
func KafkaStreams(t testing.TB) []string {
	t.Helper()
	jars, err := filepath.Glob(filepath.Join(installed(t, "kafka-streams", ""), "*.jar"))
	if err != nil {
		t.Fatal(err)
	}
	return jars
}
