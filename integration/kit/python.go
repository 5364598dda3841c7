package kit

import (
	"os"
	"path/filepath"
	"testing"
)

// Where Debian's python3-kafka lies, and the interpreter that finds it there.
const (
	debianPython = "/usr/bin/python3"
	pythonKafka  = "/usr/lib/python3/dist-packages/kafka"
)

// DebianPythonKafka is the interpreter that imports Debian's kafka-python.
func DebianPythonKafka(t testing.TB) string {
	t.Helper()
	for _, path := range []string{debianPython, pythonKafka} {
		if _, err := os.Stat(path); err != nil {
			Missing(t, "python3-kafka")
		}
	}
	return debianPython
}

// PythonKafka runs a script that imports kafka-python.
func PythonKafka(t testing.TB, script string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run("", DebianPythonKafka(t), append([]string{"-c", script}, args...)...)
}

// PythonClients is the interpreter of an environment with the newest
// kafka-python, aiokafka and confluent-kafka.
func PythonClients(t testing.TB) string {
	t.Helper()
	return filepath.Join(installed(t, "python-clients", ""), "bin", "python")
}

// NodeClients is the node_modules folder with kafkajs and its codecs.
func NodeClients(t testing.TB) string {
	t.Helper()
	return filepath.Join(installed(t, "node-clients", ""), "node_modules")
}
