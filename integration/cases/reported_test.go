package cases

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// transcript is what a few clients ask a broker, and what it answers: compared
// line by line with what Apache Kafka answered to the same. Names, ids and
// addresses read the same in both.
type transcript struct {
	*world
	lines []string
	// shown has, for what differs from run to run, what stands for it.
	shown []string
	// anyLeader: the reference has whichever member lead, of several.
	anyLeader bool
}

// reported is a scenario of public bug reports.
type reported struct {
	name string
	from string // the reports, or the changes that they led to
	play func(s *transcript)
}

// replay plays scenarios, all at once, and compares their transcripts with those in
// a file, or writes the file where the broker is the reference and STRANDLINE_RECORD
// is 1.
func replay(t *testing.T, addr, file string, scenarios []reported) {
	recorded, made := map[string][]string{}, map[string][]string{}
	if b, err := os.ReadFile(file); err == nil {
		require.NoError(t, json.Unmarshal(b, &recorded))
	}
	var mu sync.Mutex
	t.Run("scenarios", func(t *testing.T) {
		for _, sc := range scenarios {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				s := &transcript{world: newWorld(t, addr)}
				sc.play(s)
				mu.Lock()
				made[sc.name] = s.lines
				mu.Unlock()
				if !reference() {
					require.Equal(t, recorded[sc.name], s.lines, "beside Apache Kafka: %s", sc.from)
				}
			})
		}
	})
	if !reference() || t.Failed() || os.Getenv("STRANDLINE_RECORD") != "1" {
		return
	}
	b, err := json.MarshalIndent(made, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(b, '\n'), 0o644))
}

// as has a text stand for another one from now on.
func (s *transcript) as(real, shown string) string {
	if real != "" {
		s.shown = append([]string{real, shown}, s.shown...)
	}
	return real
}

// named is a fresh name, as long as every other.
func (s *transcript) named(shown string) string {
	name := fresh(shown)
	return s.as(name+strings.Repeat("x", max(0, 60-len(name))), shown)
}

// theGroup is a fresh group id, whose coordinator is ready.
func (s *transcript) theGroup(shown string) string { return s.as(s.group(), shown) }

// theTopic is a topic with partitions.
func (s *transcript) theTopic(shown string, partitions int32) (string, [16]byte) {
	s.t.Helper()
	name := s.named(shown)
	out := createTopics(s.c, 7, false, newTopic(name, partitions, "retention.ms=-1"))
	same(s.t, nil, out[0].ErrorCode)
	kit.Eventually(s.t, 20*time.Second, "every partition has offsets", func() bool {
		return !slices.ContainsFunc(listOffsets(s.c, name, partitions), func(p kmsg.ListOffsetsResponseTopicPartition) bool { return p.ErrorCode != 0 })
	})
	s.as(s.brief(reflect.ValueOf(out[0].TopicID)), "id of "+shown)
	return name, out[0].TopicID
}

func listOffsets(c *kit.Raw, topic string, partitions int32) []kmsg.ListOffsetsResponseTopicPartition {
	var list []kmsg.ListOffsetsRequestTopicPartition
	for p := range partitions {
		list = append(list, at(p, -1))
	}
	return ask[*kmsg.ListOffsetsResponse](c, lookup(7, topic, list...)).Topics[0].Partitions
}

func (s *transcript) note(format string, args ...any) {
	s.lines = append(s.lines, s.readable(fmt.Sprintf(format, args...)))
}

// readable has what stands for names and ids in their places.
func (s *transcript) readable(text string) string {
	return dashed.ReplaceAllString(strings.NewReplacer(s.shown...).Replace(text), "-uuid")
}

var dashed = regexp.MustCompile(`-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// tell asks and notes the answer.
func (s *transcript) tell(what string, req kmsg.Request) kmsg.Response {
	resp := s.c.Call(req)
	s.noteAnswer(what, resp)
	return resp
}

func (s *transcript) noteAnswer(what string, resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		if r.MemberID != "" && !strings.Contains(strings.Join(s.shown, " "), r.MemberID) {
			s.as(r.MemberID, "member of "+what)
		}
	}
	s.note("%s: %s", what, s.brief(reflect.ValueOf(resp).Elem()))
}

// parked is a request whose answer is awaited.
type parked struct {
	s    *transcript
	c    *kit.Raw
	what string
	req  kmsg.Request
	done chan answerOf
}

type answerOf struct {
	resp kmsg.Response
	err  error
	at   time.Time
}

// begin asks on a connection of its own and does not wait for the answer.
func (s *transcript) begin(what string, req kmsg.Request) *parked {
	p := &parked{s: s, c: kit.Dial(s.t, s.addr), what: what, req: req, done: make(chan answerOf, 1)}
	p.c.Send(req)
	go func() {
		resp, err := p.c.Receive(req)
		p.done <- answerOf{resp, err, time.Now()}
	}()
	return p
}

// waits notes whether there is no answer for a while, and has the broker know of the
// request by then.
func (p *parked) waits() *parked {
	p.s.t.Helper()
	if req, ok := p.req.(*kmsg.JoinGroupRequest); ok {
		p.s.await(func() bool {
			g := ask[*kmsg.DescribeGroupsResponse](p.s.c, &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{req.Group}}).Groups[0]
			return g.State == "PreparingRebalance" || len(p.done) > 0
		})
	}
	select {
	case a := <-p.done:
		p.s.note("%s: is answered at once", p.what)
		p.done <- a
	case <-time.After(300 * time.Millisecond):
		p.s.note("%s: waits", p.what)
	}
	return p
}

// ends notes the answer once it is there.
func (p *parked) ends() kmsg.Response {
	p.s.t.Helper()
	a := <-p.done
	if a.err != nil {
		p.s.note("%s: no answer", p.what)
		return nil
	}
	p.s.noteAnswer(p.what, a.resp)
	return a.resp
}

// unordered are the entries of lists that have no order.
var unordered = map[string]bool{
	"JoinGroupResponseMember": true, "DescribeGroupsResponseGroupMember": true, "DeleteGroupsResponseGroup": true,
	"ConsumerGroupDescribeResponseGroupMember": true, "ConsumerGroupHeartbeatResponseAssignmentTopic": true, "AssignmentTopicPartition": true,
	"OffsetFetchResponseGroupTopicPartition": true, "OffsetFetchResponseTopicPartition": true, "OffsetFetchResponseGroupTopic": true,
	"DescribeGroupsResponseGroup": true, "ConsumerGroupDescribeResponseGroup": true, "string": true,
	"OffsetCommitResponseTopicPartition": true, "OffsetDeleteResponseTopicPartition": true,
}

// brief is an answer in one line: fields that are zero, -1 or empty are left out.
func (s *transcript) brief(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return s.brief(v.Elem())
	case reflect.Struct:
		var fields []string
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			switch {
			case skipped[name], name == "ThrottleMillis", name == "ErrorMessage", name == "Host", name == "Port":
			case s.anyLeader && v.Type().Name() == "JoinGroupResponse" && (name == "LeaderID" || name == "Members"):
			case name == "ErrorCode":
				if err := kerr.ErrorForCode(int16(f.Int())); err != nil {
					fields = append(fields, err.(*kerr.Error).Message)
				}
			case f.Kind() == reflect.Pointer && f.IsNil():
				fields = append(fields, name+"=null")
			case f.IsZero(), f.Kind() == reflect.Slice && f.Len() == 0:
			default:
				fields = append(fields, name+"="+s.brief(f))
			}
		}
		return "{" + strings.Join(fields, " ") + "}"
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return fmt.Sprintf("%q", v.Bytes())
		}
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = s.readable(s.brief(v.Index(i)))
		}
		if unordered[v.Type().Elem().Name()] {
			slices.Sort(parts)
		}
		if v.Type().Elem().Kind() == reflect.Int32 { // partitions, in no order
			sorted := slices.Sorted(slices.Values(v.Interface().([]int32)))
			return fmt.Sprint(sorted)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(v.Interface())
}

// awaits notes what was asked for as soon as it is as it should be, or as it still
// is after some seconds.
func (s *transcript) awaits(what string, req kmsg.Request, done func(kmsg.Response) bool) kmsg.Response {
	var resp kmsg.Response
	s.await(func() bool {
		resp = s.c.Call(req)
		return done(resp)
	})
	s.noteAnswer(what, resp)
	return resp
}
