package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
)

// The partitions are those that Apache Kafka 4.4 computed.
func TestCoordinatorPartitionIsKafkas(t *testing.T) {
	for key, want := range map[string]int32{
		"":                       0,
		"a":                      47,
		"group":                  47,
		"console-consumer-81293": 4,
		"\u00e9t\u00e9":          42,
		"\u65e5\u672c\u8a9e":     43,
		"\U0001f600":             49,
		"polygenelubricants":     0, // its hash has no absolute value
		"my-group-\U0001f427-1":  13,
	} {
		require.Equal(t, want, cluster.CoordinatorPartition(key, 50), "%q", key)
	}
	for _, key := range []string{"x", "\xff\xfe", "\U0010ffff"} {
		require.Zero(t, cluster.CoordinatorPartition(key, 1))
	}
}
