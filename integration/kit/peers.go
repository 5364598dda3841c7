package kit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// KafkaVersion is the release of Apache Kafka whose tools the tests run.
const KafkaVersion = "4.4.0"

func kafkaLibs(t testing.TB) string {
	t.Helper()
	return filepath.Join(installed(t, "kafka-"+KafkaVersion, "libs"), "libs")
}

// installed is a folder that integration/tools.sh fills outside the checkout,
// or a skip where it has not.
func installed(t testing.TB, name, complete string) string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	dir := filepath.Join(cache, "strandline", name)
	if _, err := os.Stat(filepath.Join(dir, complete, ".complete")); err != nil {
		Missing(t, name)
	}
	return dir
}

// Kcat runs kcat.
func Kcat(t testing.TB, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(stdin, Tool(t, "kcat"), args...)
}

// Run runs a command to its end.
func Run(name string, args ...string) (stdout, stderr string, code int) {
	return run("", name, args...)
}

func run(stdin, name string, args ...string) (string, string, int) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return "", err.Error(), -1
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}
