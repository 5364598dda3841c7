package serve

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"strandline/broker/partition"
	"strandline/metadata/disk"
)

// ballastName is the file in metadata.log.dir that keeps room for metadata.
const ballastName = "ballast"

// ballastMaxBytes bounds it.
const ballastMaxBytes = 16 << 20

// tendEvery is how often it is looked whether the ballast can be made again.
const tendEvery = time.Second

// keepBallast gives metadata.log.dir room of its own, from when the node is
// ready, and again after it was used. Disks in memory need none.
func (n *Node) keepBallast(onDisk bool) {
	n.ballast = disk.NewBallast(n.cfg.FS, disk.BallastConfig{
		Name: path.Join(n.cfg.Broker.MetadataLogDir, ballastName), MaxBytes: ballastMaxBytes, Logger: n.cfg.Logger,
		Of: "the metadata directory", Effect: "no topic is created until there is room again",
	})
	n.onDisk = onDisk
	if !onDisk {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	n.onClose("ballast", func(context.Context) error {
		cancel()
		wg.Wait()
		return nil
	})
	wg.Go(func() { n.tendBallast(ctx) })
}

func (n *Node) tendBallast(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !n.ready.Load() || n.ballast.Held() {
			continue
		}
		if err := n.ballast.Tend(n.cfg.Broker.DiskReservedBytes); err != nil {
			n.cfg.Logger.Warn("the reserve of the metadata directory cannot be made yet", "dir", n.cfg.Broker.MetadataLogDir, "err", err)
			continue
		}
		if n.ballast.Held() {
			n.ballasted.Store(true)
			n.cfg.Logger.Info("the metadata directory has a reserve for when the disk is full", "file", path.Join(n.cfg.Broker.MetadataLogDir, ballastName))
		}
	}
}

// roomToGrow fails where the room that metadata keeps for a full disk is in use:
// nothing is begun then that makes more of it.
func (n *Node) roomToGrow() error {
	if n.ballast.Held() || !n.ballasted.Load() {
		return nil
	}
	return fmt.Errorf("%w: the disk of metadata.log.dir is full", partition.ErrDiskFull)
}
