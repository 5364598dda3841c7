package kit

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sharable are the classes that run in one virtual machine, one after the
// other: they leave nothing behind. The others get one of their own.
var sharable = []string{
	"org.apache.kafka.tools.BrokerApiVersionsCommand", "org.apache.kafka.tools.ClusterTool", "org.apache.kafka.tools.ConfigCommand",
	"org.apache.kafka.tools.DeleteRecordsCommand", "org.apache.kafka.tools.DumpLogSegments", "org.apache.kafka.tools.FeatureCommand",
	"org.apache.kafka.tools.GetOffsetShell", "org.apache.kafka.tools.LogDirsCommand", "org.apache.kafka.tools.MetadataQuorumCommand",
	"org.apache.kafka.tools.TopicCommand", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"org.apache.kafka.tools.GroupsCommand",
}

//go:embed testdata/Tools.java
var toolsSource []byte

// toolbox is the one virtual machine of a test process.
var toolbox struct {
	sync.Mutex
	started bool
	err     error
	in      io.WriteCloser
	out     *bufio.Scanner
}

// shared runs a class in the toolbox; ok is false where it needs a machine of
// its own.
func shared(java, libs, class string, args []string) (stdout, stderr string, code int, ok bool) {
	if !slices.Contains(sharable, class) {
		return "", "", 0, false
	}
	toolbox.Lock()
	defer toolbox.Unlock()
	if !toolbox.started {
		toolbox.started = true
		toolbox.err = openToolbox(java, libs)
	}
	if toolbox.err != nil {
		return "", "", 0, false
	}
	var line strings.Builder
	for _, word := range append([]string{class}, args...) {
		line.WriteString("." + base64.StdEncoding.EncodeToString([]byte(word)) + " ")
	}
	if _, toolbox.err = fmt.Fprintln(toolbox.in, strings.TrimSpace(line.String())); toolbox.err != nil {
		return "", "", 0, false
	}
	if !toolbox.out.Scan() {
		toolbox.err = io.ErrUnexpectedEOF
		return "", "the virtual machine of the tools has ended", -1, true
	}
	answer := strings.Fields(toolbox.out.Text())
	if len(answer) != 3 {
		return "", "an answer that is none: " + toolbox.out.Text(), -1, true
	}
	_, err := fmt.Sscan(answer[0], &code)
	out, err1 := base64.StdEncoding.DecodeString(answer[1][1:])
	errOut, err2 := base64.StdEncoding.DecodeString(answer[2][1:])
	if err != nil || err1 != nil || err2 != nil {
		return "", "an answer that is none: " + toolbox.out.Text(), -1, true
	}
	return string(out), string(errOut), code, true
}

// openToolbox compiles and starts the runner; it ends when its input does, with
// this process.
func openToolbox(java, libs string) error {
	if _, err := exec.LookPath("javac"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "strandline-tools-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, log := filepath.Join(dir, "Tools.java"), filepath.Join(dir, "log4j2.yaml")
	if err := os.WriteFile(source, toolsSource, 0o600); err != nil {
		return err
	}
	// What is logged belongs to the tool that runs.
	text := "Configuration:\n  Appenders: {Console: {name: ERR, target: SYSTEM_ERR, follow: true, PatternLayout: {pattern: \"%m%n\"}}}\n  Loggers: {Root: {level: warn, AppenderRef: {ref: ERR}}}\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(java, append(slices.Clone(javaFlags), "-Dlog4j2.configurationFile="+log, "-cp", libs+"/*", source)...)
	cmd.Stderr = os.Stderr
	if toolbox.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	toolbox.out = bufio.NewScanner(out)
	toolbox.out.Buffer(nil, 256<<20)
	// One command shows that it runs, and that its files are read.
	_, err = fmt.Fprintln(toolbox.in, "."+base64.StdEncoding.EncodeToString([]byte("org.apache.kafka.tools.TopicCommand"))+" ."+base64.StdEncoding.EncodeToString([]byte("--version")))
	if err == nil && !toolbox.out.Scan() {
		err = io.ErrUnexpectedEOF
	}
	return err
}

var javaFlags = []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// KafkaTool runs one of Apache Kafka's command-line classes, e.g.
// "org.apache.kafka.tools.TopicCommand".
func KafkaTool(t testing.TB, stdin, class string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	libs := kafkaLibs(t)
	java := Tool(t, "java")
	if stdin == "" {
		if out, errOut, code, ok := shared(java, libs, class, args); ok {
			return out, errOut, code
		}
	}
	return run(stdin, java, slices.Concat(javaFlags, []string{"-Dlog4j2.configurationFile=" + filepath.Join(libs, "log4j2.yaml"), "-cp", libs + "/*", class}, args)...)
}

// OldKafkaTool runs one of the command-line classes of Apache Kafka 2.8, e.g.
// "kafka.admin.ConsumerGroupCommand".
func OldKafkaTool(t testing.TB, class string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	jars := installed(t, "kafka-2", "")
	return run("", Tool(t, "java"), slices.Concat(javaFlags, []string{"-cp", filepath.Join(jars, "*"), class}, args)...)
}
