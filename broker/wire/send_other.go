//go:build !linux

package wire

import "strandline/metadata/disk"

const canSendfile = false

func (s *Sender) step(uintptr) bool { return true }

// isResident cannot be asked here: reads count as those of a disk.
func isResident(disk.Region, int64, int64) bool { return false }
