package tier

import (
	"context"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
	"strandline/metadata/cluster"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore/drivers"
	"strandline/tiering/objstore/objstoretest"
)

// bucket is an empty bucket of a running store, with a client that shares no code
// with the driver in use.
type bucket struct {
	keys func() []string // all of them, in order
	set  map[string]string
}

// prefix is where in its bucket a test's tier lies.
const prefix = "main"

func minioBucket(t *testing.T) bucket {
	m := kit.StartMinIO(t, "strandline")
	return bucket{keys: func() []string { return m.Keys("") }, set: m.Properties(prefix)}
}

// versityBucket is one of a versitygw, spoken to with a driver.
func versityBucket(t *testing.T, driver string) bucket {
	v := objstoretest.StartVersity(t)
	name := v.NewBucket(t)
	return bucket{
		keys: func() []string { return v.Keys(t, name, "") },
		set: map[string]string{
			"remote.store.url": "s3://" + name + "/" + prefix, "remote.store.driver": driver,
			"remote.store.endpoint": v.Endpoint, "remote.store.region": "us-east-1", "remote.store.path.style": "true",
			"remote.store.access.key.id": v.AccessKey, "remote.store.secret.access.key": v.SecretKey,
		},
	}
}

// segmentKeys are the objects that hold segments.
func (b bucket) segmentKeys() []string {
	var keys []string
	for _, k := range b.keys() {
		if strings.HasSuffix(k, ".seg") {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	return keys
}

// manifestKeys is what the latest manifests in the bucket say is live.
func (b bucket) manifestKeys(t *testing.T, clusterID string, topic cluster.TopicID, partitions int) []string {
	t.Helper()
	ctx := context.Background()
	store, err := drivers.Open(ctx, drivers.Config{
		URL: b.set["remote.store.url"], Endpoint: b.set["remote.store.endpoint"], Region: b.set["remote.store.region"],
		PathStyle: true, AccessKeyID: b.set["remote.store.access.key.id"], SecretAccessKey: b.set["remote.store.secret.access.key"],
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
