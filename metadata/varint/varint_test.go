package varint

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoundTrip(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, 64, math.MaxInt64, math.MinInt64, math.MaxInt32} {
		r := NewReader(Int(nil, v))
		require.Equal(t, v, r.Int())
		r.End()
		require.False(t, r.Failed(), r.Cause())
	}
	for _, v := range []uint64{0, 1, 127, 128, math.MaxUint64} {
		r := NewReader(Uint(nil, v))
		require.Equal(t, v, r.Uint())
		r.End()
		require.False(t, r.Failed(), r.Cause())
	}
	r := NewReader(Bool(String(nil, "häh"), true))
	require.Equal(t, "häh", r.String())
	require.True(t, r.Bool())
	require.Zero(t, r.Rest())
}

func TestRefuses(t *testing.T) {
	for name, f := range map[string]func(r *Reader){
		"too early":      func(r *Reader) { r.Bytes(9) },
		"long string":    func(r *Reader) { r.Byte(); _ = r.String() },
		"list":           func(r *Reader) { r.Count(1) },
		"not shortest":   func(r *Reader) { r.Bytes(3); r.Uint() },
		"boolean":        func(r *Reader) { r.Bool() },
		"bytes left":     func(r *Reader) { r.End() },
		"negative count": func(r *Reader) { r.Bytes(-1) },
	} {
		r := NewReader([]byte{9, 0x7f, 0, 0x80, 0})
		f(r)
		require.True(t, r.Failed(), name)
		pos := r.Position()
		require.Zero(t, r.Uint(), name)
		require.Equal(t, pos, r.Position(), name)
	}
	r := NewReader(Int(nil, math.MaxInt32+1))
	r.Int32()
	require.True(t, r.Failed())
	r = NewReader(Int(nil, math.MaxInt16+1))
	r.Int16()
	require.True(t, r.Failed())
	r = NewReader(Uint(nil, math.MaxUint32+1))
	r.Uint32()
	require.True(t, r.Failed())
}
