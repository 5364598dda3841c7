package serve

import (
	"context"
	"errors"
	"fmt"

	"strandline/broker/api"
	"strandline/broker/partition"
	"strandline/broker/replicas"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// logDirs are the log directories as the handlers see them.
type logDirs struct{ m *replicas.Manager }

func (l logDirs) Known(dir string) bool { return l.m.HasDir(dir) }

func (l logDirs) Move(tp cluster.TopicPartition, dir string) error {
	return moveError(l.m.Move(tp, dir))
}

// moveError says in the handlers' words why a move does not begin. A broker that
// stops has no replicas any more.
func moveError(err error) error {
	switch {
	case errors.Is(err, replicas.ErrOffline):
		return fmt.Errorf("%w: %w", partition.ErrStorage, err)
	case errors.Is(err, replicas.ErrUnknownPartition), errors.Is(err, replicas.ErrClosed):
		return fmt.Errorf("%w: %w", api.ErrReplicaNotAvailable, err)
	}
	return err
}

func (l logDirs) Describe() []api.LogDir {
	var out []api.LogDir
	for _, d := range l.m.DirSizes() {
		one := api.LogDir{Path: d.Path, Offline: d.Offline != nil, TotalBytes: d.TotalBytes, UsableBytes: d.UsableBytes}
		for _, r := range d.Replicas {
			one.Replicas = append(one.Replicas, api.LogDirReplica(r))
		}
		out = append(out, one)
	}
	return out
}

// assignDirs tells the controller where replicas of this broker are.
func (n *Node) assignDirs(ctx context.Context, dirs map[cluster.TopicPartition]cluster.DirectoryID) error {
	l := n.registered.Load()
	if l == nil {
		return errors.New("not registered yet")
	}
	_, err := n.meta.Submit(ctx, request.AssignDirs{Broker: cluster.BrokerID(n.cfg.Broker.NodeID), Epoch: l.Epoch(), Dirs: dirs})
	return err
}
