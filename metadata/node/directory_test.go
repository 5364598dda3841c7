package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
)

func FuzzProperties(f *testing.F) {
	f.Add(properties{nodeID: 1, clusterID: "c", directoryID: cluster.NewDirectoryID()}.encode())
	f.Add([]byte("# comment\nversion = 1\nbroker.id=7\nother=x"))
	f.Add([]byte("strandline.format=x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseProperties(b)
		if err != nil || p.format != formatVersion || p.version != "1" {
			return
		}
		again, err := parseProperties(p.encode())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
