package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	// Expected is the location id of the segments that the catalog holds, ""
	// where it holds none. A store without an owner object is then the emptied
	// one, and is claimed under that id again. Nil: none are expected.
	Expected func() string
	Logger   *slog.Logger // nil: none
	// ValidFor is how long a check counts. Default 30 seconds.
	ValidFor time.Duration
	Lease    LeaseConfig
}

// Ownership is a cluster's claim to a location, and a process's lease of it. Its
// methods may be called concurrently.
type Ownership struct {
	cfg   OwnershipConfig
	lease *lease

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
	if cfg.Expected == nil {
		cfg.Expected = func() string { return "" }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Ownership{cfg: cfg, lease: newLease(cfg.Lease), turn: make(chan struct{}, 1)}
}

// Location returns the location's id, and whether it is known yet.
func (o *Ownership) Location() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owner.LocationID, o.owner.LocationID != ""
}

// Check returns the layout of the location if this process may upload to it (M3,
// M5), claiming it if it is nobody's; MayDelete says more. The store is asked only
// where the last check is too old.
func (o *Ownership) Check(ctx context.Context) (Layout, error) {
	layout, err := o.checkOwner(ctx)
	if err != nil {
		return Layout{}, err
	}
	if err := o.checkLease(ctx, layout.Location); err != nil {
		return Layout{}, err
	}
	return layout, nil
}

func (o *Ownership) checkOwner(ctx context.Context) (Layout, error) {
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
			err := o.Claim(ctx, o.claim())
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

// claim is what to claim a store as that nobody owns: as what it was, where its
// owner object is lost.
func (o *Ownership) claim() Owner {
	o.mu.Lock()
	before := o.owner
	o.mu.Unlock()
	claim := Owner{LocationID: before.LocationID, Generation: max(1, before.Generation)}
	if claim.LocationID == "" {
		claim.LocationID = o.cfg.Expected()
	}
	if claim.LocationID == "" {
		claim.LocationID = cluster.NewUUID().String()
		return claim
	}
	o.cfg.Logger.Error("the store has lost the object that says whose it is, and perhaps more: someone emptied it, or part of it; it is claimed again",
		"store", o.cfg.Store.Location(), "location", claim.LocationID, "remedy", "restore the bucket from a copy; segments that are missing cannot be read")
	return claim
}

// Peek reads who owns the store, without claiming it; found is false where nobody
// does. It waits no longer than limit.
func (o *Ownership) Peek(ctx context.Context, limit time.Duration) (owner Owner, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	key, err := o.last(ctx)
	if err != nil || key == "" {
		return Owner{}, false, err
	}
	b, err := objstore.ReadAll(ctx, o.cfg.Store, key, ownerBytesMax)
	if err != nil {
		return Owner{}, false, err
	}
	owner, err = DecodeOwner(key, b)
	return owner, err == nil, err
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
