package image

import "strandline/metadata/cluster"

// Delta is what differs between two images.
type Delta struct {
	From, To *Image
	Topics   []TopicChange // by name
	Brokers  []BrokerChange
	// Configs lists the brokers whose overrides changed; NoBroker stands for
	// the overrides of all brokers.
	Configs []cluster.BrokerID
	// Meta says that features or the controller changed.
	Meta bool

	pending map[cluster.TopicID]bool
}

// TopicChange is a created (Old nil), deleted (New nil) or changed topic.
type TopicChange struct {
	Old, New *Topic
	// Partitions are the numbers of the created or changed partitions.
	Partitions []int32
	// Configs says that the overrides changed, or Tiered with them.
	Configs bool
}

// BrokerChange is a registered (Old nil) or changed broker.
type BrokerChange struct{ Old, New *Broker }

// Diff compares two images, of which one came from the other or not.
func Diff(from, to *Image) *Delta { return &Delta{From: from, To: to} }
