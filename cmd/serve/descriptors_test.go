package serve

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnectionsLeaveDescriptors(t *testing.T) {
	require.Equal(t, 10, connections(10, 1024))
	require.Equal(t, 512, connections(math.MaxInt32, 1024))
	require.Equal(t, 0, connections(0, 1024))
	require.Equal(t, 1, connections(math.MaxInt32, 1))
	require.Equal(t, math.MaxInt32, connections(math.MaxInt32, math.MaxUint64), "no limit")
	require.Positive(t, descriptors())
}
