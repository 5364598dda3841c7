package fetchsession

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
)

// A script is a cache under a clock, and clients that fetch.
//
//	cache slots=N [partitions=N]
//	pass TIME
//	fetch id=N epoch=N [ids] [follower]     lines: partition [data] [hw=N] [lso=N] [start=N] [error] [diverging]
//	forget id=N epoch=N                     lines: partitions to forget
//	stats
//
// A partition is topic-number. In an incremental fetch a line that begins with +
// asks for the partition; every line says what is found there, and a partition
// without a line is as the fetch before found it.
type script struct {
	t     *testing.T
	now   time.Time
	cache *Cache
	ids   int32
	hits  int
	found map[string]Answer
}

func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t, now: time.Unix(1000, 0), found: map[string]Answer{}}
		datadriven.RunTest(t, path, s.run)
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "cache":
		c := Config{LimitHit: func() { s.hits++ }, Random: func() int32 { s.ids++; return s.ids }}
		d.ScanArgs(t, "slots", &c.Slots)
		d.MaybeScanArgs(t, "partitions", &c.Partitions)
		s.cache, s.ids, s.hits = New(c), 0, 0
		return ""
	case "pass":
		took, err := time.ParseDuration(d.CmdArgs[0].Key)
		require.NoError(t, err)
		s.now = s.now.Add(took)
		return ""
	case "stats":
		st := s.cache.Stats()
		return fmt.Sprintf("sessions %d, partitions %d, evicted %d, limit hits %d", st.Sessions, st.Partitions, st.Evicted, s.hits)
	case "fetch", "forget":
		return s.fetch(d)
	}
	t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func (s *script) fetch(d *datadriven.TestData) string {
	h := Head{ByID: d.HasArg("ids"), Follower: d.HasArg("follower")}
	d.ScanArgs(s.t, "id", &h.ID)
	d.ScanArgs(s.t, "epoch", &h.Epoch)
	var asks []Ask
	var forget []Key
	for line := range strings.Lines(d.Input) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, asked := strings.CutPrefix(name, "+")
		key := keyOf(name, h.ByID)
		if d.Cmd == "forget" {
			forget = append(forget, key)
			continue
		}
		s.found[name] = found(s.t, s.found[name], rest)
		if asked || h.IsFull() {
			asks = append(asks, Ask{Key: key, Offset: 7})
		}
	}
	turn, ok, err := s.cache.Begin(s.now, h, asks, forget)
	switch {
	case err != nil:
		return err.Error()
	case ok:
		return s.incremental(turn)
	case h.Epoch != Initial:
		return "no session"
	}
	id := s.cache.Create(s.now, h, len(asks), func(add func(Ask, string, Answer)) {
		for _, a := range asks {
			add(a, "", s.found[nameOf(a.Key)])
		}
	})
	s.seen()
	return fmt.Sprintf("session %d", id)
}

func (s *script) incremental(turn Turn) string {
	out := fmt.Sprintf("session %d:", turn.ID())
	var parts []*Part
	turn.Parts(func(int) {}, func(p *Part) { parts = append(parts, p) })
	err := turn.Answer(func(say func(*Part, Answer) bool) {
		for _, p := range parts {
			if say(p, s.found[nameOf(p.Key)]) {
				out += " " + nameOf(p.Key)
			}
		}
	})
	if err != nil {
		return err.Error()
	}
	s.seen()
	return out
}

// seen takes away what is there once.
func (s *script) seen() {
	for name, a := range s.found {
		a.Data, a.Failed, a.Diverging = false, false, false
		s.found[name] = a
	}
}

func found(t *testing.T, a Answer, words string) Answer {
	for word := range strings.FieldsSeq(words) {
		name, value, _ := strings.Cut(word, "=")
		var n cluster.Offset
		_, _ = fmt.Sscan(value, &n)
		switch name {
		case "data":
			a.Data = true
		case "error":
			a.Failed = true
		case "diverging":
			a.Diverging = true
		case "hw":
			a.HighWatermark = n
		case "lso":
			a.LastStableOffset = n
		case "start":
			a.LogStartOffset = n
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return a
}

func keyOf(name string, byID bool) Key {
	topic, number, _ := strings.Cut(name, "-")
	k := Key{Name: topic}
	_, _ = fmt.Sscan(number, &k.Partition)
	if byID {
		k.Name = ""
		copy(k.ID[:], topic)
	}
	return k
}

func nameOf(k Key) string {
	topic := k.Name
	if topic == "" {
		topic = strings.TrimRight(string(k.ID[:]), "\x00")
	}
	return fmt.Sprintf("%s-%d", topic, k.Partition)
}
