package serve

import (
	"strandline/metadata/command"
	"strandline/tiering/segmentobject"
)

// formatVersions are the versions that this binary writes; it reads them and
// all earlier ones.
func formatVersions() map[string]any {
	return map[string]any{
		"recordBatch":   2, // Kafka's message format
		"metadata":      command.Level,
		"segmentObject": segmentobject.FormatVersion,
	}
}
