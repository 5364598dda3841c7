package groups

import (
	"hash/maphash"

	"strandline/broker/group"
)

// storedWords is the size of a filter, in words: 16 KiB, which for 10,000 groups
// is wrong about one in a hundred that are not stored.
const storedWords = 2048

var storedSeed = maphash.MakeSeed()

// stored knows which groups may have records of their own, besides offsets, in
// the view or on their way into it: commits of the many groups that never had
// members need not ask the view for them. It is a Bloom filter whose bits of a
// name lie in one word; the zero value has no group. What was deleted stays in it
// until a pass over all groups has made it anew.
type stored struct{ words []uint64 }

func bitsOf(id string) (word, bits uint64) {
	h := maphash.String(storedSeed, id)
	bits = 1<<(h&63) | 1<<(h>>6&63) | 1<<(h>>12&63) | 1<<(h>>18&63)
	return h >> 24 % storedWords, bits
}

func (s *stored) add(id string) {
	if s.words == nil {
		s.words = make([]uint64, storedWords)
	}
	word, bits := bitsOf(id)
	s.words[word] |= bits
}

// maybe is false for a group that is not there.
func (s *stored) maybe(id string) bool {
	if s.words == nil {
		return false
	}
	word, bits := bitsOf(id)
	return s.words[word]&bits == bits
}

// store notes the groups of records that are appended.
func (s *shard) store(records []group.Record) {
	for _, r := range records {
		if r.Value == nil || group.IsOffsetKey(r.Key) {
			continue
		}
		k, err := group.ParseRecordKey(r.Key)
		if err != nil {
			continue // nobody can ask for it
		}
		s.stored.add(k.Group)
		if s.sweep.running {
			s.sweep.stored.add(k.Group)
		}
	}
}
