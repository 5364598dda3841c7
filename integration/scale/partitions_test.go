package scale

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// strandline is ours. Its topics are tiered, as by default, but nothing is
// copied up: Kafka beside it has no tier.
func strandline(t testing.TB, set map[string]string) (*kit.Server, system) {
	s := kit.New(t, t.TempDir(), set)
	return s, system{
		broker: s, name: "Strandline",
		addr: func() string {
			require.NoError(t, s.AwaitReady(10*time.Minute))
			return s.Addr
		},
		stop:    func() { s.Signal(syscall.SIGTERM); <-s.Exited() },
		configs: map[string]string{"retention.ms": "-1", "remote.log.copy.disable": "true"},
	}
}

// begin starts a system and returns once every partition of ready answers; with
// none, once it answers at all. It gives how long that took.
func (s system) begin(t testing.TB, z size, made bool) (*load, cost) {
	kit.Binary(t) // built before anything is timed
	m := measure()
	s.Spawn()
	addr := s.addr()
	l := &load{t: t, size: z}
	kit.Eventually(t, 10*time.Minute, "the broker answers", func() bool {
		conn, err := kit.TryDial(t, addr)
		l.conn = conn
		return err == nil
	})
	if made {
		l.allLed()
	}
	return l, m.since(t, s.Pid(), 0)
}

// allLed waits until every partition's leader answers, one topic after the
// other: asking for all again and again would be most of the load.
func (l *load) allLed() {
	for n := range l.size.topics {
		kit.Eventually(l.t, 10*time.Minute, "every partition is led", func() bool { return l.led(topicName(n)) })
	}
}

// cost is what a step took.
type cost struct{ wall, cpu time.Duration }

type meter struct{ began time.Time }

func measure() meter { return meter{time.Now()} }

// since reads the costs; cpu is what the process had used before.
func (m meter) since(t testing.TB, pid int, cpu time.Duration) cost {
	wall := time.Since(m.began)
	return cost{wall, kit.ProcessOf(t, pid).CPU - cpu}
}

func (c cost) String() string {
	return fmt.Sprintf("%.2f s, %.2f CPU-s", c.wall.Seconds(), c.cpu.Seconds())
}

// TestManyPartitions holds what must not grow with the number of partitions, and
// that all of them come back after kill -9.
func TestManyPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	z := size{topics: 6, partitions: 50, segments: 2, records: 10, valueBytes: 100}
	s, sys := strandline(t, nil)
	l, _ := sys.begin(t, z, false)
	goroutines := func() float64 { return s.Metric("go_goroutines") }
	before, empty := goroutines(), kit.ProcessOf(t, s.Pid())

	l.create(sys.configs)
	l.allLed()
	l.fill()
	l.readBack()
	// What sealed segments asked to be flushed ends by itself.
	rest := func() {
		kit.Eventually(t, time.Minute, "goroutines do not grow with partitions", func() bool { return goroutines()-before < float64(z.all())/10 })
	}
	rest()
	full := kit.ProcessOf(t, s.Pid())
	t.Logf("%d partitions: %+v, without them %+v", z.all(), full, empty)
	// The segments being written are open; of the others as many as the cache has.
	require.LessOrEqual(t, full.Descriptors-empty.Descriptors, z.all()+1024+16)
	require.Less(t, full.Threads-empty.Threads, z.all()/4, "threads grow with partitions")
	require.Less(t, (full.ResidentBytes-empty.ResidentBytes)/int64(z.all()), int64(256<<10), "resident bytes a partition")

	s.Kill()
	l, _ = sys.begin(t, z, true)
	l.readBack()
	rest()
	require.Zero(t, s.Stop())
	l, _ = sys.begin(t, z, true)
	l.readBack()
}

// TestFiveThousandPartitions prints what they cost, beside Apache Kafka unless
// SCALE_ALONE is set. Where the machine does other work CPU-s tell more than
// s.
func TestFiveThousandPartitions(t *testing.T) {
	if !kit.Long() {
		return // TestManyPartitions is the short form; this one is make test-long-scale
	}
	z := size{topics: 100, partitions: 50, segments: 2, records: 10, valueBytes: 1600}
	rows := newTable()
	defer func() { t.Log("\n" + rows.String()) }()
	s, ours := strandline(t, nil)
	walk(t, rows, ours, z, s)
	s.Kill()
	if os.Getenv("SCALE_ALONE") == "" {
		k := kit.NewKafka(t, t.TempDir(), "2G", nil)
		walk(t, rows, system{
			broker: k, name: "Apache Kafka " + kit.KafkaVersion, addr: func() string { return k.Addr }, stop: k.Stop,
			configs: map[string]string{"retention.ms": "-1"},
		}, z, nil)
	}
}

// idle is how long an idle broker is watched.
const idle = 20 * time.Second

// walk takes one system through a life and enters what it costs.
func walk(t *testing.T, rows *table, sys system, z size, ours *kit.Server) {
	put := func(row, format string, args ...any) {
		rows.put(row, sys.name, fmt.Sprintf(format, args...))
		t.Logf("%s: %s: %s", sys.name, row, fmt.Sprintf(format, args...))
	}
	cpu := func() time.Duration { return kit.ProcessOf(t, sys.Pid()).CPU }
	rest := func(when string) {
		c, m := cpu(), measure()
		<-time.After(idle)
		spent := m.since(t, sys.Pid(), c)
		p := kit.ProcessOf(t, sys.Pid())
		put("idle CPU, "+when, "%.2f %%", 100*spent.cpu.Seconds()/spent.wall.Seconds())
		put("resident, "+when, "%d MiB", p.ResidentBytes>>20)
		put("descriptors, "+when, "%d", p.Descriptors)
		put("threads, "+when, "%d", p.Threads)
		if ours != nil {
			put("goroutines, "+when, "%.0f", ours.Metric("go_goroutines"))
		}
	}

	l, c := sys.begin(t, z, false)
	put("start on empty directories", "%v", c)
	m, before := measure(), cpu()
	l.create(sys.configs)
	put("CreateTopics answered", "%v", m.since(t, sys.Pid(), before))
	l.allLed()
	put("created: every leader answers", "%v", m.since(t, sys.Pid(), before))
	m, before = measure(), cpu()
	l.fill()
	put("a batch to every partition, twice", "%v", m.since(t, sys.Pid(), before))
	all, one := l.latencies(100, nil), l.latencies(300, []string{topicName(3)})
	put("Metadata of all topics, p50 p99", "%.2f %.2f ms", ms(all, 50), ms(all, 99))
	put("Metadata of one topic, p50 p99", "%.2f %.2f ms", ms(one, 50), ms(one, 99))
	rest("after the load")

	m = measure()
	sys.stop()
	took, cut := time.Since(m.began), ""
	if ours != nil && strings.Contains(ours.Log(), "the stop was not orderly") {
		cut = ", cut at its limit"
	}
	put("orderly stop with unsynced data in every partition", "%.2f s%s", took.Seconds(), cut)
	l, c = sys.begin(t, z, true)
	put("ready after that stop", "%v", c)
	rest("after that start")

	l.fill()
	sys.Kill()
	z.segments += 2
	l, c = sys.begin(t, z, true)
	put("ready after kill -9 right after a roll of every segment", "%v", c)
	l.size = z
	l.readBack()
	rest("after recovery")
	sys.Kill()
	_, c = sys.begin(t, z, true)
	put("ready after kill -9 when idle", "%v", c)
}

// latencies asks for metadata n times.
func (l *load) latencies(n int, topics []string) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = l.metadata(topics...)
	}
	slices.Sort(all)
	return all
}

func ms(sorted []time.Duration, percentile int) float64 {
	return sorted[(len(sorted)-1)*percentile/100].Seconds() * 1000
}

// table has a row a figure and a column a system.
type table struct {
	rows, columns []string
	cells         map[[2]string]string
}

func newTable() *table { return &table{cells: map[[2]string]string{}} }

func (t *table) put(row, column, value string) {
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	if !slices.Contains(t.columns, column) {
		t.columns = append(t.columns, column)
	}
	t.cells[[2]string{row, column}] = value
}

func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(t.columns, " | "), strings.Repeat("---|", len(t.columns)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, column := range t.columns {
			fmt.Fprintf(&b, " %s |", t.cells[[2]string{row, column}])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
