package recordbatch_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// TestDowngradeFillsItsRoom: of a plain batch exactly what fits; of a compressed
// one, whose size is not known before, no less than half of that, everything where
// there is twice the room, and never more than fits, a first message apart.
func TestDowngradeFillsItsRoom(t *testing.T) {
	records := func(n, varied int) (out []recordbatch.Record) {
		for i := range n {
			value := bytes.Repeat(fmt.Appendf(nil, "%d, ", i%7), 9+i%5)
			for j := range varied {
				value = append(value, byte((i+1)*(j+3)*2654435761>>7))
			}
			out = append(out, recordbatch.Record{Offset: cluster.Offset(100 + i), Timestamp: int64(1000 + i), Key: fmt.Appendf(nil, "key %d", i), Value: value})
		}
		return out
	}
	for _, codec := range codecs {
		for magic := int8(0); magic <= 1; magic++ {
			for _, varied := range []int{0, 150} {
				all := records(40, varied)
				b := build(recordbatch.Options{BaseOffset: 100, Codec: codec}, all...)
				for _, from := range []cluster.Offset{0, 100, 113, 139} {
					skip := max(int(from)-100, 0)
					// How large the first messages are, one, two, ...
					var sizes []int
					for n := skip + 1; n <= len(all); n++ {
						set, _, err := new(recordbatch.Downgrader).Append(nil, build(recordbatch.Options{BaseOffset: 100, Codec: codec}, all[:n]...), magic, from, 1<<30, false)
						require.NoError(t, err)
						sizes = append(sizes, len(set))
					}
					var g recordbatch.Downgrader
					for _, size := range append(sizes, 2*sizes[len(sizes)-1]) {
						for d := -1; d <= 1; d++ {
							room := size + d
							fit := 0 // sizes need not rise where they are compressed
							for i, size := range sizes {
								if size <= room {
									fit = i + 1
								}
							}
							for _, one := range []bool{false, true} {
								set, done, err := g.Append([]byte("head"), b, magic, from, room, one)
								require.NoError(t, err)
								require.Equal(t, "head", string(set[:4]))
								what := fmt.Sprintf("%v v%d from %d in %d bytes, %d fit, %d of at most %d", codec, magic, from, room, fit, done.Messages, len(sizes))
								require.Equal(t, done.Messages < len(sizes), done.Full, what)
								if done.Messages > 0 {
									require.Equal(t, sizes[done.Messages-1], len(set)-4, what)
								}
								if fit == 0 {
									require.Equal(t, one, done.Messages == 1, what)
									continue
								}
								require.LessOrEqual(t, done.Messages, fit, what)
								if codec == recordbatch.None || codec == recordbatch.Zstd {
									require.Equal(t, fit, done.Messages, what)
								}
								require.GreaterOrEqual(t, done.Messages, (fit+1)/2, what)
								if room >= 2*sizes[len(sizes)-1] {
									require.False(t, done.Full, what)
								}
							}
						}
					}
				}
			}
		}
	}
}
