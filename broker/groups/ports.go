package groups

import (
	"time"

	"strandline/broker/coordinator"
	"strandline/metadata/image"
)

// Runtime runs the shards; *coordinator.Runtime is one.
type Runtime interface {
	Do(partition int32, fn func(now time.Time, m coordinator.Machine, tx *coordinator.Tx)) error
	Read(partition int32, fn func(coordinator.Reader) error) error
	Led() (loaded, loading []int32)
}

// Watch is what groups need to know of the cluster: see watch.Watch.
type Watch interface {
	Image() *image.Image
	Subscribe(fn func(img *image.Image, d *image.Delta)) (cancel func())
}

// Schema maps keys of __consumer_offsets to keys of the view.
type Schema struct{}
