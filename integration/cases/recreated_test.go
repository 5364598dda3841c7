package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"strandline/integration/kit"
)

// OP-09 with clients of other languages: one producer and one consumer stay while
// their topic is deleted and made again, time after time. Whatever they are told,
// they go on with the new topic or say that they cannot, and never see a record
// of an old one.
func TestTopicMadeAgainUnderJava(t *testing.T) {
	madeAgainUnder(t, func(addr, topic string) *kit.Talk {
		return kit.JavaProgram(t, "testdata/Client.java", addr, topic, "1")
	})
}

func TestTopicMadeAgainUnderLibrdkafka(t *testing.T) {
	madeAgainUnder(t, func(addr, topic string) *kit.Talk {
		return kit.PythonProgram(t, "testdata/client.py", addr, topic, "1")
	})
}

func madeAgainUnder(t *testing.T, start func(addr, topic string) *kit.Talk) {
	addr := broker(t)
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	talk := start(addr, topic)
	rounds := 5
	if kit.Long() {
		rounds = 20
	}
	failed, refused := 0, 0
	// hears returns the client's next line, "" where there is none in time. Its
	// records are those of the round.
	hears := func(round int, limit time.Duration) string {
		t.Helper()
		select {
		case line, ok := <-talk.Lines():
			require.True(t, ok, "the client has ended")
			if words := strings.Fields(line); words[0] == "record" {
				require.Equal(t, fmt.Sprint("round-", round), words[3], "an old record: %s", line)
			}
			if strings.HasPrefix(line, "failed") {
				failed++
			}
			return line
		case <-time.After(limit):
			return ""
		}
	}
	for round := range rounds {
		value := fmt.Sprint("round-", round)
		// The producer may be told that the topic is gone or another one; it may be
		// told so until it hears of the new one.
		tries, late := 0, time.Now().Add(30*time.Second)
		for sent := false; !sent; tries++ {
			require.True(t, time.Now().Before(late), "the producer never recovers")
			talk.Say("0 %s", value)
			for answered := false; !answered; {
				line := hears(round, 30*time.Second)
				require.NotEmpty(t, line, "the producer says nothing")
				sent = strings.HasPrefix(line, "sent")
				answered = sent || strings.HasPrefix(line, "refused")
			}
			if !sent {
				hears(round, 100*time.Millisecond)
			}
		}
		refused += tries - 1
		require.Positive(t, end(t, c, topic, 0))
		// A consumer may have kept its position. It goes on with what is written
		// from there on, at the latest, and reads to the end.
		late = time.Now().Add(30 * time.Second)
		for last := ""; last == ""; {
			require.True(t, time.Now().Before(late), "the consumer never recovers")
			same(t, nil, send(c, 9, topic, [16]byte{}, 0, records(value)).ErrorCode)
			want := fmt.Sprintf("record 0 %d ", end(t, c, topic, 0)-1)
			for line := "-"; line != "" && last == ""; {
				if line = hears(round, 300*time.Millisecond); strings.HasPrefix(line, want) {
					last = line
				}
			}
		}

		same(t, nil, deleteTopics(c, 6, named(topic))[0].ErrorCode)
		// A client may have asked for it before this.
		out := createTopics(c, 7, false, newTopic(topic, 1))[0]
		require.Contains(t, []int16{0, kerr.TopicAlreadyExists.Code}, out.ErrorCode)
		newID := id
		kit.Eventually(t, 10*time.Second, "the new one is known and can be written", func() bool {
			got := metadata(c, 12, false, topic).Topics[0]
			newID = got.TopicID
			return got.ErrorCode == 0 && newID != id && listOffset(c, 7, topic, 0, -1).ErrorCode == 0
		})
		require.Zero(t, end(t, c, topic, 0))
		same(t, kerr.UnknownTopicID, send(c, 13, "", id, 0, records("late")).ErrorCode)
		id = newID
	}
	t.Logf("%d times made again; the consumer was told of an error %d times, the producer %d times", rounds, failed, refused)
}
