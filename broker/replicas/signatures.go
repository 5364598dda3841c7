package replicas

import (
	"context"
	"iter"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
)

// Manager hosts the replicas of this broker.
type Manager struct{}

// Get returns a hosted replica. It fails with ErrUnknownPartition, or with
// ErrOffline where the replica's log directory or log has failed.
func (m *Manager) Get(tp cluster.TopicPartition) (*partition.Partition, error) {
	return nil, ErrUnknownPartition
}

// All iterates over the replicas that are online.
func (m *Manager) All() iter.Seq[*partition.Partition] {
	return func(func(*partition.Partition) bool) {}
}

// Close stops everything orderly; clean-shutdown files are written last.
func (m *Manager) Close(ctx context.Context) error { return nil }
