package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"strandline/metadata/disk"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
)

// storeRecord, in metadata.log.dir, says which store the live remote segments of
// this node's catalog are in. The catalog has the location's id, which only the
// store itself can match with an address.
const storeRecord = "remote-store.json"

// claimRecord, in metadata.log.dir, says which processes ran on this disk, so that
// one started after a copy of the disk has run finds that out.
const claimRecord = "remote-claim.json"

// leaseConfig is how this process shows that it alone uses the store.
func (n *Node) leaseConfig() manifest.LeaseConfig {
	name := path.Join(n.cfg.Broker.MetadataLogDir, claimRecord)
	return manifest.LeaseConfig{
		Interval: n.cfg.Broker.TierManifestEvery, Broker: n.cfg.Broker.NodeID,
		Load: func() ([]byte, error) {
			data, err := disk.ReadFile(n.cfg.FS, name)
			if errors.Is(err, os.ErrNotExist) {
				return nil, nil
			}
			return data, err
		},
		Save: func(data []byte) error { return disk.WriteFileAtomic(n.ballast, name, data) },
	}
}

// storeLookMax bounds how long a start waits for a store under a new address to
// say whether it is the one before.
const storeLookMax = 5 * time.Second

// checkStore refuses a start with live remote segments and another store than
// they are in. What is recorded is compared, so that a store that does not
// answer never delays a start; one under another address is asked, as it may be
// the same behind a new name, or a directory that was moved.
func (n *Node) checkStore(ctx context.Context) error {
	here := n.store.Location()
	if here.Scheme == objstore.SchemeMem {
		return nil // no store in memory is ever the one before
	}
	live := n.liveLocations()
	name := path.Join(n.cfg.Broker.MetadataLogDir, storeRecord)
	before, err := n.readStoreRecord(name)
	if err != nil {
		return err
	}
	if before == here {
		return nil
	}
	if len(live) > 0 && before != (objstore.Location{}) {
		if err := n.compareStores(ctx, before, here, live); err != nil {
			if !errors.Is(err, errUnanswered) {
				return &ExitError{Code: ExitDirectory, Err: err}
			}
			n.cfg.Logger.Warn("the store under the new remote.store.endpoint does not answer; whether it holds the remote segments is not known yet", "err", err)
			return nil
		}
	}
	data, err := json.Marshal(here)
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(n.ballast, name, data)
}

// liveLocations counts the live remote segments by location id.
func (n *Node) liveLocations() map[string]int64 {
	live := map[string]int64{}
	for tp := range n.meta.Catalog().Partitions() {
		if sum, ok := n.meta.Catalog().Summary(tp); ok && sum.LiveCount > 0 {
			live[sum.Location] += sum.LiveCount
		}
	}
	return live
}

// expectedLocation is the location that the catalog's live segments are in.
func (n *Node) expectedLocation() string {
	best, most := "", int64(0)
	for location, count := range n.liveLocations() {
		if count > most {
			best, most = location, count
		}
	}
	return best
}

func (n *Node) readStoreRecord(name string) (objstore.Location, error) {
	var l objstore.Location
	data, err := disk.ReadFile(n.cfg.FS, name)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err != nil {
		return l, &ExitError{Code: ExitDirectory, Err: fmt.Errorf("%s: %w", name, err)}
	}
	return l, nil
}

var errUnanswered = errors.New("the store does not answer")

// compareStores fails where here is not the store that before names.
func (n *Node) compareStores(ctx context.Context, before, here objstore.Location, live map[string]int64) error {
	segments := int64(0)
	for _, count := range live {
		segments += count
	}
	key, remedy := "remote.store.url", fmt.Sprintf("set it to %s again", storeURL(before))
	renamed := before
	renamed.Endpoint = here.Endpoint
	if renamed == here {
		key, remedy = "remote.store.endpoint", fmt.Sprintf("set it to the address of %s again", before)
	}
	if before.Scheme == here.Scheme && before.Prefix == here.Prefix { // the catalog's keys hold the prefix
		owner, found, err := n.ownership.Peek(ctx, storeLookMax)
		if err != nil && renamed == here {
			return fmt.Errorf("%w: %w", errUnanswered, err)
		}
		if _, known := live[owner.LocationID]; err == nil && found && known {
			return nil
		}
	}
	configured := here.String()
	if !n.cfg.Broker.Store.Explicit {
		configured = "not set, which means " + configured
	}
	return fmt.Errorf("%s is %s, but %d live remote segments are in %s (location %s): %s, or delete their topics first, or give a new node log.dirs, metadata.log.dir and remote.cache.dir of its own",
		key, configured, segments, before, strings.Join(slices.Sorted(maps.Keys(live)), ", "), remedy)
}

func storeURL(l objstore.Location) string {
	if l.Scheme != objstore.SchemeS3 {
		return l.String()
	}
	url := "s3://" + l.Bucket
	if l.Prefix != "" {
		url += "/" + l.Prefix
	}
	return url
}
