package mem_test

import (
	"testing"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/objstore/objstoretest"
)

func TestSuite(t *testing.T) {
	objstoretest.Run(t, objstoretest.Options{}, func(*testing.T) objstore.Store { return mem.New() })
}

func TestSuiteGuarded(t *testing.T) {
	objstoretest.Run(t, objstoretest.Options{}, func(*testing.T) objstore.Store {
		return objstore.NewGuard(mem.New(), objstore.GuardConfig{})
	})
}
