package archrules

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var bannedNames = regexp.MustCompile(`/(util|utils|common|misc|helpers?|base|types|constants?|manager|impl|internal)$`)

func TestPackagesAreNamedAfterNouns(t *testing.T) {
	for _, f := range sources(t) {
		if bannedNames.MatchString("/" + f.pkg) {
			t.Errorf("package %s: a name that says nothing", f.pkg)
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range sources(t) {
		if strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		if !documented[f.pkg] {
			documented[f.pkg] = hasPackageComment(t, f)
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func hasPackageComment(t *testing.T, f sourceFile) bool {
	text := read(t, f)
	return regexp.MustCompile(`(?m)^// (Package|Command) \w+`).MatchString(text)
}

func read(t *testing.T, f sourceFile) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", f.pkg, f.name))
	require.NoError(t, err)
	return string(b)
}

func TestNoSleepInTests(t *testing.T) {
	for _, f := range sources(t) {
		if !strings.HasSuffix(f.name, "_test.go") || f.pkg == "integration/archrules" {
			continue
		}
		if strings.Contains(read(t, f), "time.Sleep(") && !strings.Contains(read(t, f), "synctest") {
			t.Errorf("%s/%s sleeps: wait for a notification, or use testing/synctest", f.pkg, f.name)
		}
	}
}

func TestFilesStayShort(t *testing.T) {
	for _, f := range sources(t) {
		limit := 800
		if strings.HasSuffix(f.name, "_test.go") {
			limit = 1000
		}
		lines := 0
		for s := bufio.NewScanner(strings.NewReader(read(t, f))); s.Scan(); lines++ {
		}
		if lines > limit {
			t.Errorf("%s/%s has %d lines, more than %d", f.pkg, f.name, lines, limit)
		}
	}
}
