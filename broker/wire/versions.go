package wire

// Keys of the APIs that are served.
const (
	KeyProduce                 int16 = 0
	KeyFetch                   int16 = 1
	KeyListOffsets             int16 = 2
	KeyMetadata                int16 = 3
	KeyOffsetCommit            int16 = 8
	KeyOffsetFetch             int16 = 9
	KeyFindCoordinator         int16 = 10
	KeyJoinGroup               int16 = 11
	KeyHeartbeat               int16 = 12
	KeyLeaveGroup              int16 = 13
	KeySyncGroup               int16 = 14
	KeyDescribeGroups          int16 = 15
	KeyListGroups              int16 = 16
	KeyAPIVersions             int16 = 18
	KeyCreateTopics            int16 = 19
	KeyDeleteTopics            int16 = 20
	KeyDeleteRecords           int16 = 21
	KeyInitProducerID          int16 = 22
	KeyOffsetForLeaderEpoch    int16 = 23
	KeyDescribeConfigs         int16 = 32
	KeyAlterConfigs            int16 = 33
	KeyAlterReplicaLogDirs     int16 = 34
	KeyDescribeLogDirs         int16 = 35
	KeyCreatePartitions        int16 = 37
	KeyDeleteGroups            int16 = 42
	KeyIncrementalAlterConfigs int16 = 44
	KeyOffsetDelete            int16 = 47
	KeyDescribeQuorum          int16 = 55
	KeyUpdateFeatures          int16 = 57
	KeyDescribeCluster         int16 = 60
	KeyDescribeProducers       int16 = 61
	KeyUnregisterBroker        int16 = 64
	KeyConsumerGroupHeartbeat  int16 = 68
	KeyConsumerGroupDescribe   int16 = 69
	KeyListConfigResources     int16 = 74
	KeyDescribeTopicPartitions int16 = 75
)

// API is a row of the version table: what is served, and thereby what is
// advertised. Versions are inclusive bounds.
type API struct {
	Key  int16
	Name string
	// Min and Max are the versions that are decoded and answered.
	Min, Max int16
	// AdvertisedMin is lower than Min where clients must see a version that
	// is nevertheless refused: old librdkafka does not compress without
	// Produce 0, and neither it nor Apache Kafka 4 means it.
	AdvertisedMin int16
	// Older is how many versions below Min are decoded too. They are served,
	// and advertised, where clients older than Apache Kafka 4 knows are.
	Older int16
	// Flexible is the first version with tagged fields.
	Flexible int16
	fields   []field
}

// Lowest is the lowest version that is decoded.
func (a *API) Lowest() int16 { return a.Min - a.Older }

// Advertised is the lowest version that clients are told of, with the older
// ones or without.
func (a *API) Advertised(older bool) int16 {
	if older {
		return min(a.AdvertisedMin, a.Lowest())
	}
	return a.AdvertisedMin
}

// IsFlexible tells whether the version has tagged fields.
func (a *API) IsFlexible(version int16) bool { return version >= a.Flexible }

var table = [...]API{
	{
		Key: KeyProduce, Name: "Produce", Min: 3, Max: 13, AdvertisedMin: 0, Older: 3, Flexible: 9,
		fields: shape("str?@3- i16 i32 [ str@-12 uuid@13- [ i32 bytes? ] ]"),
	},
	{
		Key: KeyFetch, Name: "Fetch", Min: 4, Max: 18, AdvertisedMin: 4, Older: 4, Flexible: 12,
		fields: shape("i32@-14 i32 i32 i32@3- i8@4- i32@7- i32@7- " +
			"[ str@-12 uuid@13- [ i32 i32@9- i64 i32@12- i64@5- i32 ] ] " +
			"[ str@-12 uuid@13- ( i32 ) ]@7- str@11-"),
	},
	{
		Key: KeyListOffsets, Name: "ListOffsets", Min: 1, Max: 11, AdvertisedMin: 1, Older: 1, Flexible: 6,
		fields: shape("i32 i8@2- [ str [ i32 i32@4- i64 i32@-0 ] ] i32@10-"),
	},
	{
		Key: KeyMetadata, Name: "Metadata", Min: 0, Max: 13, AdvertisedMin: 0, Flexible: 9,
		fields: shape("[ uuid@10- str@-9 str?@10- ] i8@4- i8@8-10 i8@8-"),
	},
	{
		Key: KeyOffsetCommit, Name: "OffsetCommit", Min: 2, Max: 10, AdvertisedMin: 2, Older: 2, Flexible: 8,
		fields: shape("str i32@1- str@1- str?@7- i64@2-4 [ str@-9 uuid@10- [ i32 i64 i64@1-1 i32@6- str? ] ]"),
	},
	{
		Key: KeyOffsetFetch, Name: "OffsetFetch", Min: 1, Max: 10, AdvertisedMin: 1, Older: 1, Flexible: 6,
		fields: shape("str@-7 [ str ( i32 ) ]@-7 [ str str?@9- i32@9- [ str@-9 uuid@10- ( i32 ) ] ]@8- i8@7-"),
	},
	{
		Key: KeyFindCoordinator, Name: "FindCoordinator", Min: 0, Max: 6, AdvertisedMin: 0, Flexible: 3,
		fields: shape("str@-3 i8@1- ( str )@4-"),
	},
	{
		Key: KeyJoinGroup, Name: "JoinGroup", Min: 0, Max: 9, AdvertisedMin: 0, Flexible: 6,
		fields: shape("str i32 i32@1- str str?@5- str [ str bytes ] str?@8-"),
	},
	{
		Key: KeyHeartbeat, Name: "Heartbeat", Min: 0, Max: 4, AdvertisedMin: 0, Flexible: 4,
		fields: shape("str i32 str str?@3-"),
	},
	{
		Key: KeyLeaveGroup, Name: "LeaveGroup", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 4,
		fields: shape("str str@-2 [ str str? str?@5- ]@3-"),
	},
	{
		Key: KeySyncGroup, Name: "SyncGroup", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 4,
		fields: shape("str i32 str str?@3- str?@5- str?@5- [ str bytes ]"),
	},
	{
		Key: KeyDescribeGroups, Name: "DescribeGroups", Min: 0, Max: 6, AdvertisedMin: 0, Flexible: 5,
		fields: shape("( str ) i8@3-"),
	},
	{
		Key: KeyListGroups, Name: "ListGroups", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 3,
		fields: shape("( str )@4- ( str )@5-"),
	},
	{
		Key: KeyAPIVersions, Name: "ApiVersions", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 3,
		fields: shape("str@3- str@3- str?@5- i32@5-"),
	},
	{
		Key: KeyCreateTopics, Name: "CreateTopics", Min: 2, Max: 7, AdvertisedMin: 2, Flexible: 5,
		fields: shape("[ str i32 i16 [ i32 ( i32 ) ] [ str str? ] ] i32 i8"),
	},
	{
		Key: KeyDeleteTopics, Name: "DeleteTopics", Min: 1, Max: 6, AdvertisedMin: 1, Flexible: 4,
		fields: shape("( str )@-5 [ str? uuid ]@6- i32"),
	},
	{
		Key: KeyDeleteRecords, Name: "DeleteRecords", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 2,
		fields: shape("[ str [ i32 i64 ] ] i32"),
	},
	{
		Key: KeyInitProducerID, Name: "InitProducerId", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 2,
		fields: shape("str? i32 i64@3- i16@3-"),
	},
	{
		Key: KeyOffsetForLeaderEpoch, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, AdvertisedMin: 2, Flexible: 4,
		fields: shape("i32@3- [ str [ i32 i32 i32 ] ]"),
	},
	{
		Key: KeyDescribeConfigs, Name: "DescribeConfigs", Min: 1, Max: 4, AdvertisedMin: 1, Flexible: 4,
		fields: shape("[ i8 str ( str ) ] i8 i8@3-"),
	},
	{
		Key: KeyAlterConfigs, Name: "AlterConfigs", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 2,
		fields: shape("[ i8 str [ str str? ] ] i8"),
	},
	{
		Key: KeyAlterReplicaLogDirs, Name: "AlterReplicaLogDirs", Min: 1, Max: 2, AdvertisedMin: 1, Flexible: 2,
		fields: shape("[ str [ str ( i32 ) ] ]"),
	},
	{
		Key: KeyDescribeLogDirs, Name: "DescribeLogDirs", Min: 1, Max: 5, AdvertisedMin: 1, Flexible: 2,
		fields: shape("[ str ( i32 ) ]"),
	},
	{
		Key: KeyCreatePartitions, Name: "CreatePartitions", Min: 0, Max: 3, AdvertisedMin: 0, Flexible: 2,
		fields: shape("[ str i32 [ ( i32 ) ] ] i32 i8"),
	},
	{
		Key: KeyDeleteGroups, Name: "DeleteGroups", Min: 0, Max: 3, AdvertisedMin: 0, Flexible: 2,
		fields: shape("( str )"),
	},
	{
		Key: KeyIncrementalAlterConfigs, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 1,
		fields: shape("[ i8 str [ str i8 str? ] ] i8"),
	},
	{
		Key: KeyOffsetDelete, Name: "OffsetDelete", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 1,
		fields: shape("str [ str [ i32 ] ]"),
	},
	{
		Key: KeyDescribeQuorum, Name: "DescribeQuorum", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 0,
		fields: shape("[ str [ i32 ] ]"),
	},
	{
		Key: KeyUpdateFeatures, Name: "UpdateFeatures", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 0,
		fields: shape("i32 [ str i16 i8 ] i8@1-"),
	},
	{
		Key: KeyDescribeCluster, Name: "DescribeCluster", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 0,
		fields: shape("i8 i8@1- i8@2-"),
	},
	{
		Key: KeyDescribeProducers, Name: "DescribeProducers", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0,
		fields: shape("[ str ( i32 ) ]"),
	},
	{
		Key: KeyUnregisterBroker, Name: "UnregisterBroker", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0,
		fields: shape("i32"),
	},
	{
		Key: KeyConsumerGroupHeartbeat, Name: "ConsumerGroupHeartbeat", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 0,
		fields: shape("str str i32 str? str? i32 ( str ) str?@1- str? [ uuid ( i32 ) ]"),
	},
	{
		Key: KeyConsumerGroupDescribe, Name: "ConsumerGroupDescribe", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 0,
		fields: shape("( str ) i8"),
	},
	{
		Key: KeyListConfigResources, Name: "ListConfigResources", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 0,
		fields: shape("( i8 )@1-"),
	},
	{
		Key: KeyDescribeTopicPartitions, Name: "DescribeTopicPartitions", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0,
		fields: shape("[ str ] i32 { str i32 }"),
	},
}

// byKey finds the rows; -1 is none.
var byKey = func() (index [128]int8) {
	for i := range index {
		index[i] = -1
	}
	for i := range table {
		index[table[i].Key] = int8(i)
	}
	return index
}()

// Supported returns the version table, ordered by key. The caller may not
// change it.
func Supported() []API { return table[:] }

// Lookup returns the row of an API that is served.
func Lookup(key int16) (*API, bool) {
	if key < 0 || int(key) >= len(byKey) || byKey[key] < 0 {
		return nil, false
	}
	return &table[byKey[key]], true
}
