package objstore_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/tiering/objstore"
)

func TestCRC32CIsCastagnoli(t *testing.T) {
	require.Equal(t, uint32(0xe3069283), objstore.CRC32C([]byte("123456789")))
}

// TestCombine: checksums of pieces give the checksum of the whole.
func TestCombine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 8).Draw(t, "pieces")
		var whole []byte
		var combined uint32
		var c objstore.CRC32CCombiner
		for _, p := range pieces {
			combined = objstore.CombineCRC32C(combined, objstore.CRC32C(p), int64(len(p)))
			c.Add(objstore.CRC32C(p), int64(len(p)))
			whole = append(whole, p...)
		}
		if want := objstore.CRC32C(whole); combined != want || c.Sum() != want || c.Bytes() != int64(len(whole)) {
			t.Fatalf("want %08x, combined %08x, combiner %08x", want, combined, c.Sum())
		}
	})
	big := bytes.Repeat([]byte("strandline"), 300_000)
	cut := 1_234_567
	require.Equal(t, objstore.CRC32C(big), objstore.CombineCRC32C(objstore.CRC32C(big[:cut]), objstore.CRC32C(big[cut:]), int64(len(big)-cut)))
	crc, err := objstore.RangeCRC32C(objstore.NewBytesBody(big), 100, 2_000_000)
	require.NoError(t, err)
	require.Equal(t, objstore.CRC32C(big[100:2_000_100]), crc)
	_, err = objstore.RangeCRC32C(objstore.NewBytesBody(big), 100, int64(len(big)))
	require.Error(t, err)
}
