package cluster

import "math"

// CoordinatorPartition is the partition of an internal topic that keeps the
// state of a group id or a transactional id: that of Apache Kafka, so that tools
// which look for it themselves find it. partitions is how many the topic has, at
// least 1.
func CoordinatorPartition(key string, partitions int32) int32 {
	h := javaHash(key)
	if h == math.MinInt32 {
		return 0
	}
	return max(h, -h) % partitions
}

// javaHash is java.lang.String.hashCode, which goes over UTF-16 code units.
func javaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r > 0xffff {
			r -= 0x10000
			h = 31*h + (0xd800 | r>>10)
			r = 0xdc00 | r&0x3ff
		}
		h = 31*h + r
	}
	return h
}
