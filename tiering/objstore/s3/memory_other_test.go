//go:build !linux

package s3_test

import (
	"testing"

	"strandline/tiering/objstore/objstoretest"
)

func uploadMemory(t *testing.T, _ *objstoretest.MinIO) {
	t.Skip("SKIP: resident memory is read from /proc")
}
