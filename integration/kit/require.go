package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Missing skips a test that needs a tool which is not there, or fails it where
// STRANDLINE_REQUIRE_TOOLS=1 says that every tool must be.
func Missing(t testing.TB, tool string) {
	t.Helper()
	if os.Getenv("STRANDLINE_REQUIRE_TOOLS") == "1" {
		t.Fatalf("%s is missing; `make tools` installs it", tool)
	}
	t.Skipf("%s is missing; `make tools` installs it", tool)
}

// Tool returns the path of a command, or skips.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if path := filepath.Join(goBin(), name); executable(path) {
		return path
	}
	Missing(t, name)
	return ""
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&0o111 != 0 && !st.IsDir()
}

func goBin() string {
	out, err := exec.Command("go", "env", "GOBIN", "GOPATH").Output()
	if err != nil {
		return ""
	}
	lines := strings.SplitN(string(out), "\n", 3)
	if len(lines) > 0 && lines[0] != "" {
		return lines[0]
	}
	if len(lines) > 1 {
		return filepath.Join(lines[1], "bin")
	}
	return ""
}

// Long reports whether the full forms run (make test-long).
func Long() bool { return os.Getenv("STRANDLINE_LONG") == "1" }
