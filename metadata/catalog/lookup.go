package catalog

import "strandline/metadata/cluster"

// FindOffset returns the live segment that holds o.
func FindOffset(sum Summary, r Reader, o cluster.Offset) (Segment, bool, error) {
	return Segment{}, false, nil
}

// FindTimestamp returns the first live segment at or after from (the segment
// that holds from included) whose MaxTimestamp is at least ts.
func FindTimestamp(sum Summary, r Reader, ts int64, from cluster.Offset) (Segment, bool, error) {
	return Segment{}, false, nil
}

// FindEpoch returns the last live segment whose first batch has a leader epoch
// of at most e: the end of epoch e lies in it where its LastEpoch is above e,
// and at its end or after it otherwise. False: every live segment starts with a
// later epoch, or there is none.
func FindEpoch(sum Summary, r Reader, e cluster.LeaderEpoch) (Segment, bool, error) {
	return Segment{}, false, nil
}
