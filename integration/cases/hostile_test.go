package cases

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// TestHostileGroupRequests sends requests about groups whose fields say anything,
// half of them with bytes that were changed afterwards, and every now and then
// leaves the connection while it waits. The server answers or closes the
// connection; it serves others all the time, says nothing of a failure of its own,
// and stops in order.
func TestHostileGroupRequests(t *testing.T) {
	if testing.Short() || reference() {
		t.Skip("for a server of our own")
	}
	requests := 1500
	if kit.Long() {
		requests = 50_000
	}
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("STRANDLINE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d (STRANDLINE_SEED)", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	set := map[string]string{"group.min.session.timeout.ms": "1", "group.max.session.timeout.ms": "2147483647", "offsets.topic.num.partitions": "3"}
	for k, v := range walked {
		set[k] = v
	}
	s := kit.Start(t, set)
	w := newWorld(t, s.Addr)
	topic, tid := w.topic()
	id := w.group()
	good := w.member(id, topic)
	victim := w.member("victim", topic)
	keys := []int16{8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69}
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("hostile"))
	var c *kit.Raw
	for i := range requests {
		if c == nil {
			c = kit.Dial(t, s.Addr)
		}
		req := kmsg.RequestForKey(keys[r.IntN(len(keys))])
		req.SetVersion(int16(r.IntN(int(req.MaxVersion()) + 1)))
		scramble(r, reflect.ValueOf(req).Elem(), tid, []string{"", "victim", victim.id, victim.instance, "g", topic, "consumer", "range", "uniform", "m", "\xff\xfe\x00", ".*", "a)(b", string(make([]byte, r.IntN(32767)))})
		frame := formatter.AppendRequest(nil, req, int32(i))
		if r.IntN(2) == 0 {
			frame = spoiled(r, frame)
		}
		_, err := c.Write(frame)
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(10+r.IntN(100)) * time.Millisecond)) // some wait for members
		var size [4]byte
		if err == nil {
			_, err = c.Read(size[:1])
		}
		if err == nil {
			_, err = readRest(c, size[:])
		}
		if err != nil {
			_ = c.Close()
			c = nil
		}
		if i%100 == 0 {
			commit := committing(id, good, topic, tid, 1, "")
			commit.Version = 8
			same(t, nil, ask[*kmsg.OffsetCommitResponse](w.c, commit).Topics[0].Partitions[0].ErrorCode)
		}
	}
	for _, failure := range []string{"panic", "DATA RACE", "level=ERROR"} {
		require.NotContains(t, s.Log(), failure)
	}
	require.Zero(t, s.Stop())
}

// readRest reads a frame of which one byte of the size is there.
func readRest(c *kit.Raw, size []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	n := 1
	for need := 4; n < need; {
		buf := make([]byte, min(need-n, 1<<16))
		m, err := c.Read(buf)
		if err != nil {
			return n, err
		}
		copy(size[min(n, len(size)):], buf[:m])
		if n += m; n == 4 {
			need = 4 + int(binary.BigEndian.Uint32(size))
		}
	}
	return n, nil
}

// spoiled changes some bytes of a frame, or cuts it, and makes its size right.
func spoiled(r *rand.Rand, frame []byte) []byte {
	const header = 8 // size, key and version
	for range 1 + r.IntN(4) {
		if len(frame) <= header {
			break
		}
		at := header + r.IntN(len(frame)-header)
		switch r.IntN(4) {
		case 0:
			frame[at] ^= 1 << r.IntN(8)
		case 1:
			frame[at] = 0xff
		case 2:
			for i := at; i < min(at+4, len(frame)); i++ {
				frame[i] = []byte{0, 0x7f, 0x80, 0xff}[r.IntN(4)]
			}
		default:
			frame = frame[:at]
		}
	}
	if r.IntN(20) == 0 {
		binary.BigEndian.PutUint16(frame[6:], uint16(r.IntN(40)-10))
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// scramble fills the fields of a request with what makes sense, and what does not.
func scramble(r *rand.Rand, v reflect.Value, tid [16]byte, texts []string) {
	numbers := []int64{-1, 0, 1, 2, 3, 100, 6000, -2, -3, 1<<31 - 1, -1 << 31, 1<<63 - 1, -1 << 63}
	switch {
	case v.Type() == reflect.TypeFor[[16]byte]():
		if r.IntN(3) > 0 {
			v.Set(reflect.ValueOf(tid))
		}
	case v.Type() == reflect.TypeFor[kmsg.Tags]():
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Version" {
				scramble(r, v.Field(i), tid, texts)
			}
		}
	case v.Kind() == reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			scramble(r, v.Elem(), tid, texts)
		}
	case v.Type() == reflect.TypeFor[[]byte]():
		b := make([]byte, r.IntN(200))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		v.SetBytes(b)
	case v.Kind() == reflect.Slice:
		n := []int{0, 1, 1, 2, 3, 40}[r.IntN(6)]
		if n == 0 && r.IntN(2) == 0 {
			return // null
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			scramble(r, v.Index(i), tid, texts)
		}
	case v.Kind() == reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case v.Kind() == reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case v.CanInt():
		v.SetInt(numbers[r.IntN(len(numbers))])
	}
}
