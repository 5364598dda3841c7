package group

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func viewKey(t testing.TB, recordKey []byte) []byte {
	key, err := ViewKey(recordKey)
	require.NoError(t, err)
	return key
}

func TestViewKeysOfEachKind(t *testing.T) {
	for want, k := range map[string]RecordKey{
		"og\x00\x01t\x00\x01\x00\x00\x00\x07":         OffsetKey("g", "t", 7),
		"og\x00\xff\x00\x01t\x00\x01\x00\x00\x00\x07": OffsetKey("g\x00", "t", 7),
		"gg\x00\x01":               MetadataKey("g"),
		"cg\x00\x01\x03":           {Type: ConsumerGroupMetadataRecord, Group: "g"},
		"cg\x00\x01\x04":           {Type: ConsumerPartitionMetadataRecord, Group: "g"},
		"cg\x00\x01\x05m\x00\x01":  {Type: ConsumerMemberMetadataRecord, Group: "g", Member: "m"},
		"cg\x00\x01\x06":           {Type: ConsumerTargetAssignmentMetadataRecord, Group: "g"},
		"cg\x00\x01\x07m\x00\x01":  {Type: ConsumerTargetAssignmentMemberRecord, Group: "g", Member: "m"},
		"cg\x00\x01\x08m\x00\x01":  {Type: ConsumerCurrentAssignmentRecord, Group: "g", Member: "m"},
		"cg\x00\x01\x10a*\x00\x01": {Type: ConsumerRegularExpressionRecord, Group: "g", Member: "a*"},
	} {
		require.Equal(t, want, string(viewKey(t, k.Append(nil))))
		require.Equal(t, want, string(k.ViewKey()))
	}
}

// The same offset has two record keys, of which the older is read only.
func TestOldKeysOfAnOffsetAreTheSame(t *testing.T) {
	k := OffsetKey("g", "t", 1)
	old := k
	old.Type = LegacyOffsetCommitRecord
	require.Equal(t, viewKey(t, k.Append(nil)), viewKey(t, old.Append(nil)))
	require.True(t, bytes.HasPrefix(k.ViewKey(), OffsetsViewPrefix("g", "t")))
	require.True(t, bytes.HasPrefix(k.ViewKey(), ViewPrefix(OffsetKind, "g")))
	require.False(t, bytes.HasPrefix(OffsetKey("gg", "t", 1).ViewKey(), ViewPrefix(OffsetKind, "g")))
}

func TestWhatIsNotUnderstoodIsKept(t *testing.T) {
	for _, key := range []string{"\x00\x0b\x00\x01g", "\x00", "\x00\x01\x00\x01g", "\x00\x02\x00\x01g+"} {
		require.Equal(t, "x"+key, string(viewKey(t, []byte(key))))
	}
	_, err := ViewKey(nil)
	require.ErrorIs(t, err, ErrNoKey)
}

// compare is the order in which keys are wanted.
func compare(a, b RecordKey) int {
	return cmp.Or(
		cmp.Compare(kindOf(a), kindOf(b)), cmp.Compare(a.Group, b.Group), cmp.Compare(typeOf(a), typeOf(b)),
		cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Member, b.Member),
	)
}

func kindOf(k RecordKey) ViewKind { return ViewKind(k.ViewKey()[0]) }

func typeOf(k RecordKey) RecordType {
	if k.Type == LegacyOffsetCommitRecord {
		return OffsetCommitRecord
	}
	return k.Type
}

func TestViewKeysSortAsTheirParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	text := func() string {
		b := make([]byte, rng.IntN(4))
		for i := range b {
			b[i] = []byte{0, 1, 2, 'a', 0xfe, 0xff}[rng.IntN(6)]
		}
		return string(b)
	}
	types := []RecordType{0, 1, 2, 3, 4, 5, 6, 7, 8, 16}
	var keys []RecordKey
	for range 1500 {
		k := RecordKey{Type: types[rng.IntN(len(types))], Group: text()}
		switch f, _ := k.Type.fields(); f {
		case topicAndPartition:
			k.Topic, k.Partition = text(), []int32{0, 1, 255, 256, math.MaxInt32}[rng.IntN(5)]
		case member:
			k.Member = text()
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	for i := 1; i < len(keys); i++ {
		a, b := keys[i-1], keys[i]
		require.Equal(t, compare(a, b), bytes.Compare(a.ViewKey(), b.ViewKey()), "%+v and %+v", a, b)
	}
}

func FuzzViewKey(f *testing.F) {
	seeds := golden(f)
	f.Add(seeds["offset-key"], seeds["legacy-offset-key"])
	f.Add(seeds["consumer-member-key"], seeds["consumer-regex-key"])
	f.Add([]byte("\x00\x02\x00\x02g\x00"), []byte("\x00\x02\x00\x01g"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a) == 0 || len(b) == 0 {
			return
		}
		order := bytes.Compare(viewKey(t, a), viewKey(t, b))
		ka, errA := ParseRecordKey(a)
		kb, errB := ParseRecordKey(b)
		switch {
		case errA != nil || errB != nil:
			require.Equal(t, bytes.Equal(a, b), order == 0)
		case ka.Partition >= 0 && kb.Partition >= 0:
			require.Equal(t, compare(ka, kb), order)
		default:
			require.Equal(t, compare(ka, kb) == 0, order == 0)
		}
	})
}

func TestAViewKeyTellsItsGroup(t *testing.T) {
	for _, id := range []string{"", "g", "\x00", "a\x00b", "a\x00\xffb", "\x00\x01", "\x01\x00", "\xff\x00\x00"} {
		for kind, k := range map[ViewKind]RecordKey{
			OffsetKind: OffsetKey(id, "t\x00", 1), ClassicKind: MetadataKey(id), ConsumerKind: {Type: ConsumerMemberMetadataRecord, Group: id, Member: "\x00m"},
		} {
			got, prefix := ViewKeyGroup(k.ViewKey())
			require.Equal(t, id, got)
			require.Equal(t, ViewPrefix(kind, id), k.ViewKey()[:prefix])
		}
	}
	for _, key := range []string{"", "o", "og", "og\x00", "oggg", "xg\x00\x01"} {
		id, prefix := ViewKeyGroup([]byte(key))
		require.Empty(t, id)
		require.Len(t, key, prefix)
	}
}
