package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
)

// ErrForeign: the location belongs to another cluster, or was taken over.
var ErrForeign = errors.New("the store's location belongs to another cluster")

// ownerBytesMax bounds an owner object.
const ownerBytesMax = 64 << 10

// Owner is what an owner object says.
type Owner struct {
	Format     int    `json:"format"`
	ClusterID  string `json:"clusterId"`
	LocationID string `json:"locationId"`
	Generation uint64 `json:"generation"`
	CreatedMs  int64  `json:"createdMs"`
}

// DecodeOwner reads an owner object.
func DecodeOwner(key string, b []byte) (Owner, error) {
	var o Owner
	if err := json.Unmarshal(b, &o); err != nil {
		return Owner{}, &CorruptError{key, 0, "not an owner object: " + err.Error()}
	}
	switch {
	case o.Format > formatVersion:
		return Owner{}, fmt.Errorf("%q has format %d, this release knows %d: %w", key, o.Format, formatVersion, ErrVersion)
	case o.Format != formatVersion, o.ClusterID == "", o.Generation == 0,
		objstore.ValidateKey(o.LocationID) != nil, strings.Contains(o.LocationID, "/"):
		return Owner{}, &CorruptError{key, 0, "not an owner object"}
	}
	return o, nil
}

// OwnershipConfig is what an Ownership is made of.
type OwnershipConfig struct {
	Store     objstore.Store
	ClusterID string
	// ValidFor is how long a check counts. Default 30 seconds.
	ValidFor time.Duration
}

// Ownership is a cluster's claim to a location. Its methods may be called
// concurrently.
type Ownership struct {
	cfg OwnershipConfig

	mu      sync.Mutex
	owner   Owner // as first seen; zero before
	checked time.Time
	turn    chan struct{} // one check at a time
}

// NewOwnership returns a claim that nobody has looked at yet.
func NewOwnership(cfg OwnershipConfig) *Ownership {
	if cfg.ValidFor <= 0 {
		cfg.ValidFor = 30 * time.Second
	}
	return &Ownership{cfg: cfg, turn: make(chan struct{}, 1)}
}

// Location returns the location's id, and whether it is known yet.
func (o *Ownership) Location() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owner.LocationID, o.owner.LocationID != ""
}

// Check returns the layout of the location if it is ours (M3), claiming it if it
// is nobody's. The store is asked only where the last check is too old.
func (o *Ownership) Check(ctx context.Context) (Layout, error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return Layout{}, ctx.Err()
	}
	o.mu.Lock()
	owner, fresh := o.owner, !o.checked.IsZero() && time.Since(o.checked) < o.cfg.ValidFor
	o.mu.Unlock()
	if !fresh {
		now, err := o.look(ctx)
		if err != nil {
			return Layout{}, err
		}
		if err := o.judge(owner, now); err != nil {
			return Layout{}, err
		}
		owner = now
		o.mu.Lock()
		o.owner, o.checked = now, time.Now()
		o.mu.Unlock()
	}
	return Layout{Store: o.cfg.Store.Location(), Location: owner.LocationID}, nil
}

func (o *Ownership) judge(before, now Owner) error {
	where := o.cfg.Store.Location()
	if now.ClusterID != o.cfg.ClusterID {
		return fmt.Errorf("%w: %s was claimed by cluster %s, this is cluster %s; give this cluster a bucket or prefix of its own in remote.store.url",
			ErrForeign, where, now.ClusterID, o.cfg.ClusterID)
	}
	if before.Generation != 0 && (before.Generation != now.Generation || before.LocationID != now.LocationID) {
		return fmt.Errorf("%w: %s was taken over (generation %d, was %d when this broker started); stop this broker if it runs on a copy of the disks",
			ErrForeign, where, now.Generation, before.Generation)
	}
	return nil
}

// look finds the owner object that counts, or makes the first one.
func (o *Ownership) look(ctx context.Context) (Owner, error) {
	for attempt := 0; ; attempt++ {
		key, err := o.last(ctx)
		if err != nil {
			return Owner{}, err
		}
		if key == "" {
			err := o.Claim(ctx, Owner{LocationID: cluster.NewUUID().String(), Generation: 1})
			if err != nil && (attempt > 0 || !errors.Is(err, objstore.ErrExists)) {
				return Owner{}, err
			}
			continue // read what counts now: someone else may have been first
		}
		b, err := objstore.ReadAll(ctx, o.cfg.Store, key, ownerBytesMax)
		if err != nil {
			return Owner{}, err
		}
		return DecodeOwner(key, b)
	}
}

func (o *Ownership) last(ctx context.Context) (string, error) {
	last := ""
	prefix := o.cfg.Store.Location().Key(ownerFolder) + "/"
	for info, err := range o.cfg.Store.List(ctx, prefix, "") {
		if err != nil {
			return "", err
		}
		name := strings.TrimPrefix(info.Key, prefix)
		if _, err := strconv.ParseUint(name, 10, 64); err == nil && len(name) == 20 {
			last = info.Key
		}
	}
	return last, nil
}

// Claim puts an owner object of this cluster with the generation and location of
// owner; ErrExists where the generation is taken.
func (o *Ownership) Claim(ctx context.Context, owner Owner) error {
	owner.Format, owner.ClusterID, owner.CreatedMs = formatVersion, o.cfg.ClusterID, time.Now().UnixMilli()
	b, err := json.Marshal(owner)
	if err != nil {
		return err
	}
	key := o.cfg.Store.Location().Key(ownerFolder, fmt.Sprintf("%020d", owner.Generation))
	_, err = o.cfg.Store.Put(ctx, key, objstore.NewBytesBody(b), objstore.PutOptions{
		IfAbsent: true, CRC32C: objstore.CRC32C(b), HasCRC: true, ContentType: "application/json",
	})
	return err
}
