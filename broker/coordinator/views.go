package coordinator

import (
	"log/slog"

	"strandline/metadata/disk"
	"strandline/metadata/store"
)

// ViewsConfig is what Views are made of.
type ViewsConfig struct {
	FS     disk.FS
	Dir    string // made if missing; nothing else lies in it
	Logger *slog.Logger
	// Fatal is store.Config.Fatal.
	Fatal func(error)
}

// Views are the views of all partitions, of all internal topics, in one
// database.
type Views struct {
	db *store.DB
}
