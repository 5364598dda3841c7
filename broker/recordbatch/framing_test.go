package recordbatch_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
)

// TestKeyAndValueFillTheMessage: whatever length a key claims, the value's length
// and the value must follow it and end the message.
func TestKeyAndValueFillTheMessage(t *testing.T) {
	for magic := int8(0); magic <= 1; magic++ {
		good := message(magic, 0, 5, 7, []byte("key"), []byte("value!"))
		keyAt := 18
		if magic == 1 {
			keyAt += 8
		}
		for claimed := int32(-2); claimed < 40; claimed++ {
			m := append([]byte(nil), good...)
			binary.BigEndian.PutUint32(m[keyAt:], uint32(claimed))
			binary.BigEndian.PutUint32(m[12:], crc32.ChecksumIEEE(m[16:]))
			got, err := messages(&recordbatch.Decoder{}, m)
			if claimed == 3 {
				require.NoError(t, err)
				require.Equal(t, "key", string(got[0].Key))
				require.Equal(t, "value!", string(got[0].Value))
				continue
			}
			require.ErrorIs(t, err, recordbatch.ErrBadRecord, "v%d, a key of %d bytes", magic, claimed)
			require.Empty(t, got)
		}
		for _, claimed := range []int32{0, 5, 7, 1 << 30, -1 << 31} {
			m := append([]byte(nil), good...)
			binary.BigEndian.PutUint32(m[keyAt+7:], uint32(claimed))
			binary.BigEndian.PutUint32(m[12:], crc32.ChecksumIEEE(m[16:]))
			_, err := messages(&recordbatch.Decoder{}, m)
			require.ErrorIs(t, err, recordbatch.ErrBadRecord, "v%d, a value of %d bytes", magic, claimed)
		}
	}
}
