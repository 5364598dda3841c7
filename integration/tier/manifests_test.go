package tier

import (
	"context"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
	"strandline/metadata/cluster"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore/drivers"
)

// manifestKeys is what the latest manifests in the bucket say is live.
func manifestKeys(t *testing.T, m *kit.MinIO, prefix, clusterID string, topic cluster.TopicID, partitions int) []string {
	t.Helper()
	ctx := context.Background()
	store, err := drivers.Open(ctx, drivers.Config{
		URL: "s3://" + m.Bucket + "/" + prefix, Endpoint: "http://" + m.Addr, Region: "us-east-1",
		PathStyle: true, AccessKeyID: kit.MinIOUser, SecretAccessKey: kit.MinIOPassword,
	})
	require.NoError(t, err)
	defer store.Close()
	layout, err := manifest.NewOwnership(manifest.OwnershipConfig{Store: store, ClusterID: clusterID}).Check(ctx)
	require.NoError(t, err)
	w := manifest.Writer{Store: store, Layout: layout}
	var keys []string
	for p := range int32(partitions) {
		latest, err := w.Latest(ctx, cluster.TopicPartition{Topic: topic, Partition: p})
		require.NoError(t, err)
		if latest == nil {
			continue
		}
		for s, err := range w.Live(ctx, latest) {
			require.NoError(t, err)
			keys = append(keys, s.Key)
		}
	}
	sort.Strings(keys)
	return keys
}
