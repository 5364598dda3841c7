package catalog

import "strandline/metadata/cluster"

// FindOffset returns the live segment that holds o.
func FindOffset(sum Summary, r Reader, o cluster.Offset) (Segment, bool, error) {
	if o >= sum.RemoteEnd || sum.LiveCount == 0 {
		return Segment{}, false, nil
	}
	s, ok, err := r.LiveAtOrBefore(o)
	if err != nil || !ok || s.End <= o {
		return Segment{}, false, err
	}
	return s, true, nil
}

// FindTimestamp returns the first live segment at or after from (the segment
// that holds from included) whose MaxTimestamp is at least ts. It reads a
// number of segments that grows with the logarithm of the log's length, plus
// those that follow where the highest timestamp belonged to a segment that has
// expired.
func FindTimestamp(sum Summary, r Reader, ts int64, from cluster.Offset) (Segment, bool, error) {
	if ts > sum.MaxTimestamp || from >= sum.RemoteEnd || sum.LiveCount == 0 {
		return Segment{}, false, nil
	}
	base := from
	if s, ok, err := FindOffset(sum, r, from); err != nil {
		return Segment{}, false, err
	} else if ok {
		base = s.Base
	}
	base, err := search(r, base, sum.RemoteEnd, func(s Segment) bool { return s.PrefixMaxTimestamp >= ts })
	if err != nil {
		return Segment{}, false, err
	}
	for s, err := range r.LiveFrom(base) {
		if err != nil {
			return Segment{}, false, err
		}
		if s.Object.MaxTimestamp >= ts {
			return s, true, nil
		}
	}
	return Segment{}, false, nil
}

// FindEpoch returns the last live segment whose first batch has a leader epoch
// of at most e: the end of epoch e lies in it where its LastEpoch is above e,
// and at its end or after it otherwise. False: every live segment starts with a
// later epoch, or there is none.
func FindEpoch(sum Summary, r Reader, e cluster.LeaderEpoch) (Segment, bool, error) {
	if sum.LiveCount == 0 {
		return Segment{}, false, nil
	}
	base, err := search(r, 0, sum.RemoteEnd, func(s Segment) bool { return s.Object.FirstEpoch > e })
	if err != nil || base == 0 {
		return Segment{}, false, err
	}
	s, ok, err := r.LiveAtOrBefore(base - 1)
	if err != nil || !ok || s.Object.FirstEpoch > e {
		return Segment{}, false, err
	}
	return s, true, nil
}

// search gives the base offset of the first live segment that starts in
// [lo, hi) and for which later is true, or hi. Once true of a segment, later
// must be true of all that follow it.
func search(r Reader, lo, hi cluster.Offset, later func(Segment) bool) (cluster.Offset, error) {
	for lo < hi {
		mid := lo + (hi-lo)/2
		s, ok, err := r.LiveAtOrBefore(mid)
		switch {
		case err != nil:
			return 0, err
		case !ok || s.Base < lo:
			lo = mid + 1 // nothing starts in [lo, mid]
		case later(s):
			hi = s.Base
		default:
			lo = s.End
		}
	}
	return hi, nil
}
