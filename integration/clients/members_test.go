package clients

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

const heartbeatInterval = 300 * time.Millisecond

// member is a process in a consumer group: it is killed, or told to leave.
type member struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	end  sync.Once

	out, errOut io.Reader

	mu         sync.Mutex
	held       []int
	times      int           // it was told what it holds
	first      map[int]int64 // the first offset of each partition that it has read
	ready      bool          // it waits until it may join
	generation int           // of its group, where it says so
	said       []string      // all else
	fenced     bool
	left       bool
	gone       bool // killed: it holds nothing, though its pipe may still say so
}

// start starts a member of the group.
func (g *group) start(instance string) *member {
	g.t.Helper()
	m := g.prepare(instance)
	g.join(m)
	return m
}

// join lets a member that was prepared join.
func (g *group) join(m *member) {
	g.t.Helper()
	if g.client == "kcat" { // it has no way to wait
		require.NoError(g.t, m.cmd.Start())
		g.hears(m)
		return
	}
	_, err := m.in.Write([]byte("\n"))
	require.NoError(g.t, err)
}

// prepare starts the process of a member up to where it joins: that takes a
// while on a busy machine.
func (g *group) prepare(instance string) *member {
	g.t.Helper()
	args := []string{g.server.Addr, g.name, g.subscription, g.protocol, instance, strconv.FormatInt(g.session.Milliseconds(), 10)}
	var cmd *exec.Cmd
	switch g.client {
	case "java":
		cmd = exec.Command(kit.Tool(g.t, "java"), slices.Concat(kit.JavaClass(g.t, "testdata/Member.java"), args)...)
	case "kafkajs":
		cmd = exec.Command(kit.Tool(g.t, "node"), slices.Concat([]string{"testdata/member.js", kit.NodeClients(g.t)}, args)...)
	case "confluent", "kafka-python", "aiokafka":
		cmd = exec.Command(kit.PythonClients(g.t), slices.Concat([]string{"testdata/member.py", g.client}, args)...)
	case "kcat":
		cmd = exec.Command(kit.Tool(g.t, "kcat"), "-b", g.server.Addr, "-u", "-G", g.name, "-f", `read %p %o\n`,
			"-X", "session.timeout.ms="+args[5], "-X", "heartbeat.interval.ms=300", "-X", "auto.commit.interval.ms=100", "-X", "auto.offset.reset=earliest",
			"-X", "fetch.wait.max.ms=100", "-X", "reconnect.backoff.max.ms=500", "-X", "group.instance.id="+instance, g.topic)
	default:
		cmd = exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), memberVariable+"="+strings.Join(append([]string{g.client}, args...), "\n"))
	}
	m := &member{name: string(rune('A' + len(g.members))), cmd: cmd, first: map[int]int64{}}
	var err error
	m.in, err = cmd.StdinPipe()
	require.NoError(g.t, err)
	m.out, err = cmd.StdoutPipe()
	require.NoError(g.t, err)
	m.errOut, err = cmd.StderrPipe()
	require.NoError(g.t, err)
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	if g.client == "kcat" {
		return m
	}
	require.NoError(g.t, kit.StartChild(cmd))
	g.hears(m)
	kit.Eventually(g.t, groupLimit, "the member may join", m.isReady)
	return m
}

// hears takes the lines of a member until it ends.
func (g *group) hears(m *member) {
	for _, r := range []io.Reader{m.out, m.errOut} {
		g.readers.Go(func() {
			lines := bufio.NewScanner(r)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				g.hear(m, lines.Text())
			}
		})
	}
}

// end kills what still runs, and tells of the members where the test has failed.
func (g *group) end() {
	for _, m := range g.members {
		held := m.holds()
		m.kill()
		if g.t.Failed() {
			m.mu.Lock()
			g.t.Logf("%s, %s: held %d times, at last %v, left %t\n%s", g.client, m.name, m.times, held, m.left, strings.Join(m.said, "\n"))
			m.mu.Unlock()
		}
	}
	g.readers.Wait()
}

// rebalanced is what kcat says where others say "hold".
var rebalanced = regexp.MustCompile(`rebalanced \(.*\): (assigned|revoked): ?(.*)`)

// hear takes a line of a member.
func (g *group) hear(m *member, line string) {
	word, rest, _ := strings.Cut(line, " ")
	if found := rebalanced.FindStringSubmatch(line); found != nil {
		word, rest = "hold", ""
		if found[1] == "assigned" {
			rest = strings.NewReplacer(g.topic+" [", "", "]", "", ",", "").Replace(found[2])
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch word {
	case "hold":
		if !m.gone {
			m.held = numbers(rest)
			m.times++
			m.said = append(m.said, time.Now().Format("[05.000] ")+line)
		}
	case "read":
		n := numbers(rest)
		if _, ok := m.first[n[0]]; !ok {
			m.first[n[0]] = int64(n[1])
		}
		g.mu.Lock()
		for _, o := range n[1:] {
			g.seen[[2]int{n[0], o}]++
		}
		g.mu.Unlock()
	case "ready":
		m.ready = true
	case "left":
		m.left = true
	case "generation":
		m.generation = numbers(rest)[0]
	case "fenced":
		m.fenced, m.held = true, nil // it reads no more
		m.said = append(m.said, line)
	default:
		m.said = append(m.said, line)
	}
}

func numbers(text string) []int {
	var all []int
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// holds is what the member has been told that it holds.
func (m *member) holds() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.held)
}

// toldTimes is how often the member was told what it holds.
func (m *member) toldTimes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.times
}

// generationNow is the group's generation as the member last said it.
func (m *member) generationNow() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

// isReady tells whether the member waits until it may join.
func (m *member) isReady() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ready
}

// isFenced tells whether the member was told that another one has its instance.
func (m *member) isFenced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fenced
}

// heard is what the member has said of what befell it.
func (m *member) heard() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.said)
}

// kill ends the process where it stands: it does not leave the group.
func (m *member) kill() {
	m.mu.Lock()
	m.gone, m.held = true, nil
	m.mu.Unlock()
	m.end.Do(func() {
		if m.cmd.Process != nil {
			_ = m.cmd.Process.Kill()
			_, _ = m.cmd.Process.Wait()
		}
	})
}

// leave lets the member leave the group and end.
func (g *group) leave(m *member) {
	g.t.Helper()
	if g.client == "kcat" {
		require.NoError(g.t, m.cmd.Process.Signal(syscall.SIGTERM))
	}
	require.NoError(g.t, m.in.Close())
	ended := make(chan error, 1)
	m.end.Do(func() {
		go func() {
			state, err := m.cmd.Process.Wait()
			if err == nil && state.ExitCode() != 0 {
				err = &exec.ExitError{ProcessState: state}
			}
			ended <- err
		}()
	})
	select {
	case err := <-ended:
		require.NoError(g.t, err, "%s ends", m.name)
	case <-time.After(groupLimit):
		_ = m.cmd.Process.Kill()
		require.Fail(g.t, "it does not leave", "%s", m.name)
	}
	m.mu.Lock()
	m.held = nil
	m.mu.Unlock()
}
