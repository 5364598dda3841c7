package cluster

// InternalTopic says whether a name is one that Apache Kafka keeps for topics in
// which brokers have their own state.
func InternalTopic(name string) bool {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state":
		return true
	}
	return false
}
