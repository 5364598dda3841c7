package wire

import (
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fill sets every field of a message to something, so that its encoding has
// every part of the schema.
func fill(v reflect.Value, rnd *rand.Rand, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if rnd.IntN(3) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), rnd, depth)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			if rnd.IntN(4) == 0 {
				v.Addr().Interface().(*kmsg.Tags).Set(uint32(100+rnd.IntN(1000)), []byte("tagged"))
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fill(v.Field(i), rnd, depth)
			}
		}
	case reflect.Slice:
		n := rnd.IntN(4)
		if depth > 4 {
			n = 0
		}
		s := reflect.MakeSlice(v.Type(), n, n)
		for i := range n {
			fill(s.Index(i), rnd, depth+1)
		}
		v.Set(s)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), rnd, depth)
		}
	case reflect.String:
		v.SetString([]string{"", "a", "topic-name", "\x00\xff"}[rnd.IntN(4)])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(int8(rnd.IntN(256))))
	case reflect.Uint8:
		v.SetUint(uint64(rnd.IntN(256)))
	case reflect.Uint32:
		v.SetUint(uint64(rnd.Uint32()))
	}
}

func TestShapesAgreeWithTheDecoder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("shape"))
	for _, api := range Supported() {
		for version := api.Lowest(); version <= api.Max; version++ {
			for range 6 {
				req := kmsg.RequestForKey(api.Key)
				fill(reflect.ValueOf(req).Elem(), rnd, 0)
				req.SetVersion(version)
				require.Equal(t, req.IsFlexible(), api.IsFlexible(version), "%s %d", api.Name, version)
				frame := format.AppendRequest(nil, req, 42)[4:]
				q, err := ParseRequest(frame)
				require.NoError(t, err, "%s %d", api.Name, version)
				require.Equal(t, int32(42), q.CorrelationID)
				require.Equal(t, "shape", string(q.ClientID))
				require.NoError(t, CheckShape(&q), "%s %d: %+v", api.Name, version, req)

				// Whatever the walk refuses, and accepts, the decoder does too.
				whole := q.Body
				for cut := 0; cut < len(whole); cut += 1 + rnd.IntN(3) {
					q.Body = whole[:cut]
					again := kmsg.RequestForKey(api.Key)
					again.SetVersion(version)
					decoded := again.ReadFrom(q.Body)
					if checked := CheckShape(&q); (checked == nil) != (decoded == nil) {
						t.Fatalf("%s %d cut at %d of %d: walk says %v, decoder says %v", api.Name, version, cut, len(whole), checked, decoded)
					}
				}
			}
		}
	}
}

func TestTheTableIsWhatKmsgKnows(t *testing.T) {
	for _, api := range Supported() {
		req := kmsg.RequestForKey(api.Key)
		require.NotNil(t, req, api.Name)
		require.Equal(t, kmsg.NameForKey(api.Key), map[bool]string{true: "InitProducerID", false: api.Name}[api.Key == KeyInitProducerID])
		require.LessOrEqual(t, api.Max, req.MaxVersion(), api.Name)
		require.LessOrEqual(t, api.AdvertisedMin, api.Min, api.Name)
		found, ok := Lookup(api.Key)
		require.True(t, ok)
		require.Equal(t, api.Name, found.Name)
	}
	for _, key := range []int16{-1, 4, 99, 127, 128, 1000, 32767} {
		_, ok := Lookup(key)
		require.False(t, ok, "%d", key)
	}
}

func TestHeadersThatAreNotServed(t *testing.T) {
	for _, frame := range [][]byte{
		{0, 4, 0, 2, 0, 0, 0, 9, 0xff, 0xff},    // LeaderAndIsr
		{0, 3, 0, 99, 0, 0, 0, 9, 0xff, 0xff},   // Metadata 99
		{0x7f, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xff}, // no such key
	} {
		q, err := ParseRequest(frame)
		require.ErrorIs(t, err, ErrUnsupported)
		require.Equal(t, int32(9), q.CorrelationID)
	}
	_, err := ParseRequest([]byte{0, 3, 0, 1, 0, 0, 0, 9, 0, 200, 'x'})
	require.ErrorIs(t, err, ErrMalformed)
	_, err = ParseRequest([]byte{0, 3})
	require.ErrorIs(t, err, ErrMalformed)
}

func TestAnnouncedElementsAreRefusedBeforeTheyAreMade(t *testing.T) {
	body := make([]byte, 4+2*MaxElements+100) // empty names, one after the other
	body[0], body[1], body[2], body[3] = 0, 0x20, 0, 0
	q := Request{Key: KeyMetadata, Version: 1, Body: body}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := CheckShape(&q)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrMalformed)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))

	tags := []byte{0}
	for range MaxTags + 1 {
		tags = append(tags, 5, 0)
	}
	q = Request{Key: KeyDescribeCluster, Version: 0, Body: append([]byte{1, 0xa1, 0x9c, 0x01}, tags...)}
	require.ErrorIs(t, CheckShape(&q), ErrMalformed)
}

func FuzzCheckShape(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for _, api := range Supported() {
		for _, version := range []int16{api.Lowest(), api.Min, api.Max} {
			req := kmsg.RequestForKey(api.Key)
			fill(reflect.ValueOf(req).Elem(), rnd, 0)
			req.SetVersion(version)
			f.Add(api.Key, version, req.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		api, ok := Lookup(key)
		if !ok || version < api.Lowest() || version > api.Max {
			return
		}
		q := Request{Key: key, Version: version, Body: body}
		if CheckShape(&q) != nil {
			return
		}
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = req.ReadFrom(body)
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<10+400*len(body)); got > most {
			t.Fatalf("%s %d: a body of %d bytes made the decoder allocate %d", api.Name, version, len(body), got)
		}
	})
}
