package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// TestCoordinatorsAreListed is GR-03 for one broker: whatever listener a client
// comes through, before and after a kill, the coordinator of a group is a broker of
// that listener's metadata.
func TestCoordinatorsAreListed(t *testing.T) {
	s := own(t, map[string]string{
		"listeners":                      "PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0",
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
	})
	for _, kill := range []bool{false, true} {
		if kill {
			s.Restart(true)
		}
		require.Len(t, s.Ready.Listeners, 2)
		seen := map[int32]bool{}
		for _, listener := range s.Ready.Listeners {
			_, addr, _ := strings.Cut(listener, "://")
			c := kit.Dial(t, addr)
			find := func(version int16, keys ...string) *kmsg.FindCoordinatorResponse {
				return ask[*kmsg.FindCoordinatorResponse](c, &kmsg.FindCoordinatorRequest{Version: version, CoordinatorKeys: keys, CoordinatorKey: keys[0]})
			}
			var names []string
			for i := range 100 {
				names = append(names, fmt.Sprint("group-", i))
			}
			kit.Eventually(t, 30*time.Second, "there is a coordinator", func() bool { return find(4, names[0]).Coordinators[0].ErrorCode == 0 })
			listed := ask[*kmsg.MetadataResponse](c, &kmsg.MetadataRequest{Version: 12}).Brokers
			require.Len(t, listed, 1)
			for _, found := range find(6, names...).Coordinators {
				require.Zero(t, found.ErrorCode)
				require.Equal(t, []any{listed[0].NodeID, listed[0].Host, listed[0].Port}, []any{found.NodeID, found.Host, found.Port})
			}
			old := find(2, names[7])
			require.Equal(t, []any{listed[0].NodeID, listed[0].Host, listed[0].Port}, []any{old.NodeID, old.Host, old.Port})
			seen[listed[0].Port] = true
		}
		require.Len(t, seen, 2, "each listener has a port of its own")
	}
}
