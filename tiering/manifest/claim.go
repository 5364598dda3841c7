package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrCopy: another process with the identity of this broker uses the location:
// one of the two runs on a copy of the other's disks.
var ErrCopy = errors.New("a copy of this broker's disks uses the object store")

// ErrUnsettled: whether another process uses the location is not known yet, or
// not any more. It passes by itself.
var ErrUnsettled = errors.New("it is not certain that this broker alone uses the object store")

// Claim is what a claim object says: that a process of a broker uses the
// location.
type Claim struct {
	Format    int    `json:"format"`
	ClusterID string `json:"clusterId"`
	Broker    int32  `json:"broker"`
	// Number orders the claims of a broker; the highest counts.
	Number uint64 `json:"number"`
	// Incarnation is a random id of the process.
	Incarnation string `json:"incarnation"`
	// Renewals grows while the process runs.
	Renewals uint64 `json:"renewals"`
	// Released says that the process has stopped and will not write or delete.
	Released  bool  `json:"released"`
	RenewedMs int64 `json:"renewedMs"`
}

// DecodeClaim reads a claim object.
func DecodeClaim(key string, b []byte) (Claim, error) {
	var c Claim
	if err := json.Unmarshal(b, &c); err != nil {
		return Claim{}, &CorruptError{key, 0, "not a claim object: " + err.Error()}
	}
	switch {
	case c.Format > formatVersion:
		return Claim{}, fmt.Errorf("%q has format %d, this release knows %d: %w", key, c.Format, formatVersion, ErrVersion)
	case c.Format != formatVersion, c.ClusterID == "", c.Number == 0, c.Incarnation == "":
		return Claim{}, &CorruptError{key, 0, "not a claim object"}
	}
	return c, nil
}

// knownIncarnations bounds the incarnations that a record keeps.
const knownIncarnations = 16

// claimRecord is what a broker's own disk knows of its claims, by location id:
// the incarnations that ran on it, the latest last. One is recorded before it
// claims anything.
type claimRecord struct {
	Format       int                 `json:"format"`
	Incarnations map[string][]string `json:"incarnations"`
}

func decodeClaimRecord(b []byte) (claimRecord, error) {
	r := claimRecord{Format: formatVersion, Incarnations: map[string][]string{}}
	if len(b) == 0 {
		return r, nil
	}
	err := json.Unmarshal(b, &r)
	if err == nil && r.Format != formatVersion {
		err = fmt.Errorf("format %d, this release knows %d", r.Format, formatVersion)
	}
	if r.Incarnations == nil {
		r.Incarnations = map[string][]string{}
	}
	return r, err
}

// with is the record after one more incarnation.
func (r claimRecord) with(location, incarnation string) claimRecord {
	known := slices.DeleteFunc(slices.Clone(r.Incarnations[location]), func(s string) bool { return s == incarnation })
	known = append(known, incarnation)
	next := claimRecord{Format: formatVersion, Incarnations: map[string][]string{}}
	for l, k := range r.Incarnations {
		next.Incarnations[l] = k
	}
	next.Incarnations[location] = known[max(0, len(known)-knownIncarnations):]
	return next
}

// verdict is what to do about the claim that counts.
type verdict int8

const (
	takeNow   verdict = iota // nobody uses the location
	keepWatch                // its process may be running
	takenOver                // a process that never ran on this disk has it
	isRunning                // its process was seen to run
)

// judgeClaim tells what a start does about the claim that it finds, nil for
// none, with the incarnations that its own disk knows. The same disk never runs
// twice at a time, so a released claim of its own has ended. A disk that knows
// none is one from before there were claims, or one whose record was removed
// in order to take over.
func judgeClaim(last *Claim, known []string) verdict {
	switch {
	case last == nil:
		return takeNow
	case len(known) > 0 && !slices.Contains(known, last.Incarnation):
		return takenOver
	case last.Released:
		return takeNow
	}
	return keepWatch
}

// renewalsSeen is how many changes of a claim prove that its process runs. A
// process that was killed may have left one request that arrives late.
const renewalsSeen = 2

// watching is what a start has seen of a claim that is not released.
type watching struct {
	seen    Claim
	changes int
	since   time.Time // of the last change, by this process's clock
}

// see takes note of the claim that counts now, nil for none.
func (w *watching) see(last *Claim, now time.Time, quiet time.Duration) verdict {
	switch {
	case last != nil && (last.Number != w.seen.Number || last.Incarnation != w.seen.Incarnation):
		return takenOver
	case last != nil && last.Released:
		return takeNow
	case last != nil && last.Renewals != w.seen.Renewals:
		w.seen, w.since = *last, now
		if w.changes++; w.changes >= renewalsSeen {
			return isRunning
		}
	case now.Sub(w.since) > quiet:
		return takeNow
	}
	return keepWatch
}
