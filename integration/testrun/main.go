// Command testrun is what `make test` runs: format check, vet and every test.
// Packages of the product run with -race where a C compiler is found; those of
// integration/ start servers and tools as processes of their own, where -race
// would see nothing, so they run without it and one after the other. It prints
// one line a package with its seconds, one line for each skipped test with the
// reason, the whole output of whatever failed, and closes with
// "N passed, N failed, N skipped".
//
// With STRANDLINE_REQUIRE_TOOLS=1 a skipped test is a failure. Arguments that
// begin with - are flags for go test, the others package patterns; none means
// all.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"time"
)

const usage = `make test [TESTFLAGS="[-FLAG=VALUE...] [PACKAGE...]"]

Flags are those of go test, each one word; packages are its patterns, all where
none is given:

  make test TESTFLAGS=./cmd/...
  make test TESTFLAGS="-run=TestGroup ./integration/conformance"`

func main() {
	if slices.ContainsFunc(os.Args[1:], func(a string) bool { return a == "-h" || a == "-help" || a == "--help" }) {
		fmt.Println(usage)
		return
	}
	flags, patterns := arguments(os.Args[1:])
	requireTools := os.Getenv("STRANDLINE_REQUIRE_TOOLS") == "1"
	ok := timed("gofmt", gofmt)
	ok = timed("vet", func() bool { return command("go", append([]string{"vet"}, patterns...)...) }) && ok
	product, integration, err := packages(patterns)
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	t := tally{output: map[string]*bytes.Buffer{}, seconds: map[string]float64{}}
	args := append([]string{"test", "-json", "-count=1", "-timeout=20m"}, flags...)
	if len(product) > 0 {
		race := []string{"-race"}
		if _, err := exec.LookPath(cCompiler()); err != nil {
			fmt.Println("race: no C compiler found, the race detector is off")
			race = nil
		}
		ok = timed("tests", func() bool { return t.run(slices.Concat(args, race, product)) }) && ok
	}
	if len(integration) > 0 {
		ok = timed("integration", func() bool { return t.run(slices.Concat(args, []string{"-p=1"}, integration)) }) && ok
	}
	t.printSlowest()
	if requireTools && t.skipped > 0 {
		fmt.Println("FAIL: tests were skipped although every tool is required")
		ok = false
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	if !ok || t.failed > 0 {
		os.Exit(1)
	}
}

func arguments(args []string) (flags, patterns []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			flags = append(flags, a)
		} else {
			patterns = append(patterns, a)
		}
	}
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	return flags, patterns
}

// packages lists what the patterns name, those of integration/ apart.
func packages(patterns []string) (product, integration []string, err error) {
	cmd := exec.Command("go", append([]string{"list"}, patterns...)...)
	cmd.Stderr = os.Stdout
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w", err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(p, "strandline/integration/") {
			integration = append(integration, p)
		} else {
			product = append(product, p)
		}
	}
	return product, integration, nil
}

func cCompiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "gcc"
}

func timed(name string, part func() bool) bool {
	start := time.Now()
	ok := part()
	word := "ok"
	if !ok {
		word = "FAIL"
	}
	fmt.Printf("%-5s %s: %.0f s\n", word, name, time.Since(start).Seconds())
	return ok
}

func gofmt() bool {
	out, err := exec.Command("gofmt", "-l", ".").CombinedOutput()
	if err != nil || len(out) > 0 {
		fmt.Printf("not gofmt-ed:\n%s", out)
		return false
	}
	return true
}

func command(name string, args ...string) bool {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run() == nil
}

// event is a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// tally counts tests and keeps their output until it is known whether it is
// worth showing.
type tally struct {
	passed, failed, skipped int
	output                  map[string]*bytes.Buffer
	seconds                 map[string]float64
}

func (t *tally) run(args []string) bool {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stdout
	out, err := cmd.StdoutPipe()
	if err != nil {
		fmt.Println(err)
		return false
	}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return false
	}
	t.read(out)
	return cmd.Wait() == nil
}

func (t *tally) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text())
			continue
		}
		t.take(e)
	}
}

func (t *tally) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if e.Action == "build-output" {
			fmt.Print(e.Output)
			return
		}
		if t.output[key] == nil {
			t.output[key] = &bytes.Buffer{}
		}
		t.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		t.finish(e, key)
		delete(t.output, key)
	}
}

func (t *tally) finish(e event, key string) {
	text := ""
	if b := t.output[key]; b != nil {
		text = b.String()
	}
	if e.Test == "" {
		t.seconds[e.Package] = e.Elapsed
		if e.Action == "fail" {
			fmt.Print(text)
		}
		if e.Action != "skip" {
			fmt.Printf("%-5s %s %.1f s\n", e.Action, e.Package, e.Elapsed)
		}
		return
	}
	switch e.Action {
	case "pass":
		t.passed++
	case "fail":
		t.failed++
		fmt.Printf("FAIL %s\n%s", key, text)
	case "skip":
		t.skipped++
		fmt.Printf("SKIP %s: %s\n", key, reason(text))
	}
}

// reason is the text that was given to t.Skip.
func reason(output string) string {
	var kept []string
	for line := range strings.SplitSeq(output, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, " ")
}

func (t *tally) printSlowest() {
	names := make([]string, 0, len(t.seconds))
	for n := range t.seconds {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool { return t.seconds[names[i]] > t.seconds[names[j]] })
	fmt.Println("slowest packages:")
	for _, n := range names[:min(8, len(names))] {
		fmt.Printf("  %6.1f s %s\n", t.seconds[n], n)
	}
}
