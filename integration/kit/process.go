package kit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clockTicks are those of a second in /proc/PID/stat: 100 wherever Go runs.
const clockTicks = 100

// Process is what a process has used so far, and holds now.
type Process struct {
	CPU           time.Duration // user and system
	ResidentBytes int64
	Descriptors   int
	Threads       int
}

// ProcessOf reads a process's figures from /proc.
func ProcessOf(t testing.TB, pid int) Process {
	t.Helper()
	var p Process
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The second field, a name in brackets, may hold blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	number := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	p.CPU = time.Duration(number(11)+number(12)) * time.Second / clockTicks
	p.Threads = int(number(17))
	p.ResidentBytes = number(21) * int64(os.Getpagesize())
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	p.Descriptors = len(fds)
	return p
}
