package command

import (
	"maps"
	"slices"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/metadata/varint"
)

func readBroker(r *varint.Reader) cluster.BrokerID { return cluster.BrokerID(r.Int32()) }

func readEpoch(r *varint.Reader) cluster.LeaderEpoch { return cluster.LeaderEpoch(r.Int32()) }

func readTopicPartition(r *varint.Reader) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: r.ID(), Partition: r.Int32()}
}

// AppendBrokers and the functions below are the pieces that the image's entries
// share.
func AppendBrokers(b []byte, ids []cluster.BrokerID) []byte {
	b = varint.Uint(b, uint64(len(ids)))
	for _, id := range ids {
		b = varint.Int(b, int64(id))
	}
	return b
}

// ReadBrokers reads what AppendBrokers wrote.
func ReadBrokers(r *varint.Reader) []cluster.BrokerID {
	var ids []cluster.BrokerID
	if n := r.Count(1); n > 0 {
		ids = make([]cluster.BrokerID, 0, n)
		for range n {
			ids = append(ids, readBroker(r))
		}
	}
	return ids
}

// AppendDirs appends directory ids.
func AppendDirs(b []byte, ids []cluster.DirectoryID) []byte {
	b = varint.Uint(b, uint64(len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

// ReadDirs reads what AppendDirs wrote.
func ReadDirs(r *varint.Reader) []cluster.DirectoryID {
	var ids []cluster.DirectoryID
	for range r.Count(16) {
		ids = append(ids, r.ID())
	}
	return ids
}

// AppendStrings appends a map, sorted by key.
func AppendStrings(b []byte, m map[string]string) []byte {
	b = varint.Uint(b, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = varint.String(varint.String(b, k), m[k])
	}
	return b
}

// ReadStrings reads what AppendStrings wrote; an empty map is nil.
func ReadStrings(r *varint.Reader) map[string]string {
	var m map[string]string
	last := ""
	for n := range r.Count(2) {
		if m == nil {
			m = map[string]string{}
		}
		k := r.String()
		if n > 0 && k <= last {
			r.Fail("keys are not in order")
		}
		last, m[k] = k, r.String()
	}
	return m
}

// AppendListeners appends endpoints.
func AppendListeners(b []byte, ls []request.Listener) []byte {
	b = varint.Uint(b, uint64(len(ls)))
	for _, l := range ls {
		b = varint.String(varint.String(b, l.Name), l.Host)
		b = varint.String(varint.Int(b, int64(l.Port)), l.Security)
	}
	return b
}

// ReadListeners reads what AppendListeners wrote.
func ReadListeners(r *varint.Reader) []request.Listener {
	var ls []request.Listener
	for range r.Count(4) {
		ls = append(ls, request.Listener{Name: r.String(), Host: r.String(), Port: r.Int32(), Security: r.String()})
	}
	return ls
}

// AppendRanges appends feature ranges, sorted by name.
func AppendRanges(b []byte, m map[string]request.FeatureRange) []byte {
	b = varint.Uint(b, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = varint.String(b, k)
		b = varint.Int(varint.Int(b, int64(m[k].Min)), int64(m[k].Max))
	}
	return b
}

// ReadRanges reads what AppendRanges wrote; an empty map is nil.
func ReadRanges(r *varint.Reader) map[string]request.FeatureRange {
	var m map[string]request.FeatureRange
	last := ""
	for n := range r.Count(3) {
		if m == nil {
			m = map[string]request.FeatureRange{}
		}
		k := r.String()
		if n > 0 && k <= last {
			r.Fail("names are not in order")
		}
		last = k
		m[k] = request.FeatureRange{Min: cluster.FeatureLevel(r.Int16()), Max: cluster.FeatureLevel(r.Int16())}
	}
	return m
}
