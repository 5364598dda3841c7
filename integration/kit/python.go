package kit

import (
	"os"
	"testing"
)

// Where Debian's python3-kafka lies, and the interpreter that finds it there.
const (
	debianPython = "/usr/bin/python3"
	pythonKafka  = "/usr/lib/python3/dist-packages/kafka"
)

// PythonKafka runs a script that imports kafka-python.
func PythonKafka(t testing.TB, script string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	for _, path := range []string{debianPython, pythonKafka} {
		if _, err := os.Stat(path); err != nil {
			Missing(t, "python3-kafka")
		}
	}
	return run("", debianPython, append([]string{"-c", script}, args...)...)
}
