package archrules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	declared  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	named     = regexp.MustCompile("`(?:[\\w/]+\\.)?((?:Test|Fuzz|Benchmark)\\w+)(\\*?)(?:/\\w+)?`")
	commanded = regexp.MustCompile("`[^`]*go test([^`]*)`")
	pattern   = regexp.MustCompile(`-run '?([^' ]+)'?`)
	ofPackage = regexp.MustCompile(`\./[\w/]+`)
)

// TestPagesNameTestsThatExist: what docs/acceptance.md and docs/cases.md say shows
// a promise is there, and each command runs something.
func TestPagesNameTestsThatExist(t *testing.T) {
	tests, all := map[string][]string{}, []string{}
	for _, f := range sources(t) {
		if strings.HasSuffix(f.name, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(read(t, f), -1) {
				tests[f.pkg] = append(tests[f.pkg], m[1])
				all = append(all, m[1])
			}
		}
	}
	seen := 0
	for _, page := range []string{"docs/acceptance.md", "docs/cases.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				seen++
				if !slices.ContainsFunc(all, func(x string) bool { return x == m[1] || m[2] == "*" && strings.HasPrefix(x, m[1]) }) {
					t.Errorf("%s names %s%s, which is not there", page, m[1], m[2])
				}
			}
			for _, m := range commanded.FindAllStringSubmatch(line, -1) {
				runsSomething(t, page, m[1], tests)
			}
		}
	}
	require.Greater(t, seen, 200)
}

// runsSomething complains of a command that runs no test in one of its packages.
func runsSomething(t *testing.T, page, command string, tests map[string][]string) {
	t.Helper()
	which := regexp.MustCompile("")
	if run := pattern.FindStringSubmatch(command); run != nil {
		if run[1] == "-" { // benchmarks alone
			return
		}
		name, _, _ := strings.Cut(strings.ReplaceAll(run[1], `\|`, "|"), "/")
		which = regexp.MustCompile(name)
	}
	for _, pkg := range ofPackage.FindAllString(command, -1) {
		pkg = strings.TrimSuffix(pkg[2:], "/")
		if strings.Contains(command, pkg+"/...") {
			continue
		}
		if !slices.ContainsFunc(tests[pkg], which.MatchString) {
			t.Errorf("%s: go test%s runs nothing in %s", page, command, pkg)
		}
	}
}
