package objstoretest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// RequireToolsEnv, set to 1, makes a missing tool a failure instead of a skip.
const RequireToolsEnv = "STRANDLINE_REQUIRE_TOOLS"

// Tool returns the path of a program in $PATH or in Go's bin folder, else it
// skips the test with one line.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range goBins() {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}
	if os.Getenv(RequireToolsEnv) == "1" {
		t.Fatalf("%s is not installed (make tools), and %s=1 forbids skipping", name, RequireToolsEnv)
	}
	t.Skipf("SKIP: %s is not installed (make tools)", name)
	return ""
}

func goBins() []string {
	var dirs []string
	if out, err := exec.Command("go", "env", "GOBIN", "GOPATH").Output(); err == nil {
		lines := strings.Split(string(out), "\n")
		if lines[0] != "" {
			dirs = append(dirs, lines[0])
		}
		if len(lines) > 1 {
			for _, p := range filepath.SplitList(lines[1]) {
				dirs = append(dirs, filepath.Join(p, "bin"))
			}
		}
	}
	return dirs
}
