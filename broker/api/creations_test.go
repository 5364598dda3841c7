package api

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client that asks again and again for a topic that cannot be made does not
// fill the log.
func TestRefusalsAreSaidOnceAMinute(t *testing.T) {
	c := creations{refused: map[string]time.Time{}}
	now := time.UnixMilli(1_700_000_000_000)
	require.True(t, c.tellRefusal("a", now))
	require.False(t, c.tellRefusal("a", now.Add(refusalEvery-1)))
	require.True(t, c.tellRefusal("b", now.Add(refusalEvery-1)))
	require.True(t, c.tellRefusal("a", now.Add(refusalEvery)))
	for i := range 10 * AutoCreateMax {
		c.tellRefusal(strconv.Itoa(i), now.Add(refusalEvery))
	}
	require.Len(t, c.refused, AutoCreateMax)
	require.False(t, c.tellRefusal("c", now.Add(refusalEvery)), "there are too many to name")
	require.True(t, c.tellRefusal("c", now.Add(2*refusalEvery)))
	require.Len(t, c.refused, 1)
}
