package serve

import (
	"context"
	"iter"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/tiering/archive"
	"strandline/tiering/rangecache"
	"strandline/tiering/remotelog"
	"strandline/tiering/sweep"
)

// startArchive begins to copy segments up and to remove what has expired.
func (n *Node) startArchive(context.Context) error {
	b := n.cfg.Broker
	n.ownership.Start()
	n.onClose("claim to the object store", n.ownership.Close) // after all who use it
	n.archiver = archive.New(archive.Config{
		Store: n.store, Ownership: n.ownership, Submitter: n.meta, Catalog: n.meta.Catalog(),
		Replicas: n.archivable, Replica: n.archivableOne, Workers: int(b.TierCopiers), Interval: b.TierTaskEvery,
		UploadDeadline: b.TierUploadDeadline, Hook: n.cfg.Hook, Logger: n.cfg.Logger, Now: n.cfg.Now,
	})
	n.registry.MustRegister(n.archiver.Collectors()...)
	n.archiver.Start()
	n.offers.Store(n.archiver)
	n.onClose("archive", func(context.Context) error { return n.archiver.Close() })
	n.sweeper = sweep.New(sweep.Config{
		Store: n.store, Ownership: n.ownership, Submitter: n.meta, Catalog: n.meta.Catalog(),
		Topic:     func(id cluster.TopicID) (*image.Topic, bool) { return n.meta.Image().TopicByID(id) },
		Subscribe: n.meta.Subscribe, Replicas: n.sweepable, Responsible: func() bool { return true }, ClusterID: n.meta.ClusterID(),
		Dropped: n.cache.Drop, Interval: b.TierTaskEvery, ManifestInterval: b.TierManifestEvery, DeleteDelay: b.TierDeleteDelay,
		RecoveryWindow: b.TierRecoveryWindow, Logger: n.cfg.Logger, Now: n.cfg.Now,
	})
	n.registry.MustRegister(n.sweeper.Collectors()...)
	n.sweeper.Start()
	n.onClose("sweep", func(context.Context) error { return n.sweeper.Close() })
	return nil
}

func (n *Node) sweepable() iter.Seq[sweep.Replica] {
	return func(yield func(sweep.Replica) bool) {
		for p := range n.replicas.All() {
			if !yield(p) {
				return
			}
		}
	}
}

func (n *Node) archivable() iter.Seq[archive.Replica] {
	return func(yield func(archive.Replica) bool) {
		for p := range n.replicas.All() {
			if !yield(p) {
				return
			}
		}
	}
}

func (n *Node) archivableOne(tp cluster.TopicPartition) (archive.Replica, bool) {
	p, err := n.replicas.Get(tp)
	if err != nil {
		return nil, false
	}
	return p, true
}

// tierCollectors are the tier's metrics, of parts that were never started, for
// the reference page.
func tierCollectors() []prometheus.Collector {
	var c []prometheus.Collector
	c = append(c, (&rangecache.Cache{}).Collectors()...)
	c = append(c, remotelog.New(remotelog.Config{}).Collectors()...)
	c = append(c, archive.New(archive.Config{}).Collectors()...)
	c = append(c, sweep.New(sweep.Config{}).Collectors()...)
	return c
}
