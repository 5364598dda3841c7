package kit

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Talk is a program that a test talks with by lines: what it is told, and what
// it says by itself.
type Talk struct {
	t     testing.TB
	name  string
	in    io.WriteCloser
	lines chan string
}

// JavaProgram starts a source file of Java with Apache Kafka's classes.
func JavaProgram(t testing.TB, source string, args ...string) *Talk {
	t.Helper()
	libs := kafkaLibs(t)
	Tool(t, "javac") // a runtime alone does not run a source file
	flags := append(slices.Clone(javaFlags), "-Dlog4j2.configurationFile="+filepath.Join(libs, "log4j2.yaml"), "-cp", libs+"/*", source)
	return startTalk(t, Tool(t, "java"), append(flags, args...)...)
}

// PythonProgram starts a script with the clients of PythonClients.
func PythonProgram(t testing.TB, source string, args ...string) *Talk {
	t.Helper()
	return startTalk(t, PythonClients(t), append([]string{"-u", source}, args...)...)
}

func startTalk(t testing.TB, program string, args ...string) *Talk {
	t.Helper()
	cmd := exec.Command(program, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	p := &Talk{t: t, name: filepath.Base(program), in: in, lines: make(chan string, 1<<16)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		for range p.lines { // so that the reader ends
		}
		<-read
		_ = cmd.Wait()
		if b, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s %v:\n%s", p.name, args, tail(string(b), 4000))
		}
	})
	return p
}

// Say writes a line.
func (p *Talk) Say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// Lines is what it says; closed when it has ended.
func (p *Talk) Lines() <-chan string { return p.lines }

// Hear returns its next line, or fails the test when there is none in time.
func (p *Talk) Hear(limit time.Duration) string {
	p.t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("%s has ended", p.name)
		}
		return line
	case <-late.C:
		p.t.Fatalf("%s says nothing for %s", p.name, limit)
	}
	return ""
}
