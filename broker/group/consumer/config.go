package consumer

import (
	"time"

	"strandline/broker/group"
	"strandline/broker/group/classic"
)

// MigrationPolicy is group.consumer.migration.policy: which changes of protocol
// a group with members may make.
type MigrationPolicy string

// The policies.
const (
	Bidirectional     MigrationPolicy = "bidirectional"
	UpgradeOnly       MigrationPolicy = "upgrade"
	DowngradeOnly     MigrationPolicy = "downgrade"
	MigrationDisabled MigrationPolicy = "disabled"
)

func (p MigrationPolicy) upgrades() bool   { return p == Bidirectional || p == UpgradeOnly }
func (p MigrationPolicy) downgrades() bool { return p == Bidirectional || p == DowngradeOnly }

// Config is what holds for a group: the broker's group.consumer.* keys, the
// three of the group's own resource (consumer.*) over them.
type Config struct {
	// MaxSize is how many members a group may have, at least 1.
	MaxSize int
	// SessionTimeout is how long a member may be silent; positive.
	SessionTimeout time.Duration
	// HeartbeatInterval is what members are told; positive.
	HeartbeatInterval time.Duration
	// AssignmentInterval is the least time from one target assignment to the
	// next (KIP-1263); 0: none.
	AssignmentInterval time.Duration
	// RegexRefreshInterval is how often regular expressions are matched again
	// where no topic was created.
	RegexRefreshInterval time.Duration
	// Assignors are the assignors that members may ask for, the default first;
	// at least one of Assignors().
	Assignors []string
	Migration MigrationPolicy
	// Classic holds for members that speak the classic protocol, and for the
	// group that they may become.
	Classic classic.Config
}

// DefaultConfig has Apache Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		MaxSize:        1<<31 - 1,
		SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second,
		AssignmentInterval: time.Second, RegexRefreshInterval: 10 * time.Minute,
		Assignors: Assignors(), Migration: Bidirectional,
		Classic: classic.Config{
			InitialRebalanceDelay: 3 * time.Second, MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute,
			MaxSize: 1<<31 - 1, Offsets: group.OffsetConfig{MetadataMax: 4096, Retention: 7 * 24 * time.Hour},
		},
	}
}

// Env is what an event finds around the group.
type Env struct {
	Config Config
	Topics Topics
}
