package serve

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/api"
	"strandline/broker/partition"
	"strandline/broker/replicas"
)

func TestWhyAMoveDoesNotBegin(t *testing.T) {
	require.NoError(t, moveError(nil))
	for cause, want := range map[error]error{
		replicas.ErrOffline:          partition.ErrStorage,
		replicas.ErrUnknownPartition: api.ErrReplicaNotAvailable,
		replicas.ErrClosed:           api.ErrReplicaNotAvailable,
		replicas.ErrNoSuchDir:        replicas.ErrNoSuchDir,
	} {
		err := moveError(fmt.Errorf("orders-0: %w", cause))
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, cause)
	}
}
