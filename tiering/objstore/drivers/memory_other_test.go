//go:build !linux

package drivers_test

import (
	"testing"

	"strandline/tiering/objstore/objstoretest"
)

func uploadMemory(t *testing.T, _ *objstoretest.Server, _ driver) {
	t.Skip("SKIP: resident memory is read from /proc")
}
