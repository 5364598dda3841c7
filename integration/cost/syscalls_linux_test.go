package cost

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// waiting are calls by which Go's scheduler and collector wait, wake, and take
// and give back memory. How many there are depends on how long the pauses
// between requests are, which tracing itself makes longer: they are reported
// alone.
var waiting = []string{
	"futex", "nanosleep", "epoll_pwait", "sched_yield", "restart_syscall", "tgkill", "getpid", "rt_sigreturn", "rt_sigprocmask",
	"madvise", "mmap", "munmap", "clone", "clone3", "gettid", "sigaltstack", "rseq", "set_robust_list",
}

// spare is what the server's own duties, and wake-ups of a busy machine, may add
// to a request's calls: more than nothing, less than one call a request.
const spare = 0.4

// TestSystemCalls bounds the system calls that a request makes, by kind.
func TestSystemCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	strace := kit.Tool(t, "strace")
	b := newBench(t)
	for _, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			b := b.with(t)
			const warm = 50
			requests := l.prepare(b, warm+l.n)
			b.run(l, requests[:warm])
			counts := trace(t, strace, b.srv.Pid(), func() { b.run(l, requests[warm:]) })
			var said []string
			for _, kind := range slices.Sorted(maps.Keys(counts)) {
				c := counts[kind]
				each, empty := float64(c.calls-c.failed)/float64(l.n), float64(c.failed)/float64(l.n)
				if each+empty < slack {
					continue
				}
				text := fmt.Sprintf("%.2f %s", each, kind)
				if empty > 0.005 {
					text += fmt.Sprintf(" (and %.2f in vain)", empty)
				}
				said = append(said, text)
				if !slices.Contains(waiting, kind) {
					require.LessOrEqual(t, each, l.calls[kind]+spare, kind)
					// A socket that has nothing, or no room, says so before it is waited for.
					require.LessOrEqual(t, empty, l.calls[kind]+spare, "%s in vain", kind)
				}
			}
			t.Log(strings.Join(said, ", "))
			for kind := range l.calls {
				require.NotZero(t, counts[kind], "%s is called at all", kind)
			}
		})
	}
}

// count is how often a system call was made, and how often it failed.
type count struct{ calls, failed int }

// trace counts a process's system calls while fn runs.
func trace(t *testing.T, strace string, pid int, fn func()) map[string]count {
	out := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command(strace, "-f", "-c", "-U", "calls,errors,name", "-o", out, "-p", strconv.Itoa(pid))
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(said)
	text := ""
	for !strings.Contains(text, "attached") {
		if !lines.Scan() {
			_ = cmd.Wait()
			kit.Missing(t, "strace's right to look at another process ("+text+")")
		}
		text = lines.Text()
	}
	fn()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	for lines.Scan() { // until it has ended
	}
	_ = cmd.Wait() // it ends by the signal that it got
	return parse(t, out)
}

// parse reads the table that strace writes: calls, errors where there were any,
// name.
func parse(t *testing.T, path string) map[string]count {
	table, err := os.ReadFile(path)
	require.NoError(t, err)
	counts := map[string]count{}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[len(f)-1] == "total" {
			continue
		}
		calls, err := strconv.Atoi(f[0])
		if err != nil {
			continue // a heading
		}
		c := count{calls: calls}
		if len(f) > 2 {
			c.failed, err = strconv.Atoi(f[1])
			require.NoError(t, err, line)
		}
		counts[f[len(f)-1]] = c
	}
	require.NotEmpty(t, counts, "%s", table)
	return counts
}
