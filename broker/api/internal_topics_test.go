package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestInternalTopicsAreNotMadeForClients(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for name := range map[string]bool{"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true} {
		resp := ask[*kmsg.MetadataResponse](c, metadataRequest(true, name), 12)
		require.Equal(t, int16(3), resp.Topics[0].ErrorCode)
		require.True(t, resp.Topics[0].IsInternal)
		require.Empty(t, k.created)
	}
	ask[*kmsg.MetadataResponse](c, metadataRequest(true, "__mine"), 12)
	require.Equal(t, "__mine", <-k.created, "two underscores alone mean nothing")
}
