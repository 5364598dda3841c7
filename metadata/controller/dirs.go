package controller

import (
	"bytes"
	"cmp"
	"slices"

	"strandline/metadata/command"
	"strandline/metadata/request"
)

// assignDirsMax bounds the assignments of one request, which is one command.
const assignDirsMax = 2000

// assignDirs records in which log directories a broker has its replicas. What is
// known already, or is about something that is gone, is left out.
func (c *Controller) assignDirs(r request.AssignDirs) (request.Result, error) {
	b, err := c.checkBroker(r.Broker, r.Epoch)
	if err != nil {
		return nil, err
	}
	if len(r.Dirs) > assignDirsMax {
		return nil, request.Refuse(request.ErrInvalidRequest, "%d assignments at once, at most %d", len(r.Dirs), assignDirsMax)
	}
	record := command.DirsAssigned{Broker: b.ID}
	for tp, dir := range r.Dirs {
		if !slices.Contains(b.LogDirs, dir) {
			return nil, request.Refuse(request.ErrInvalidRequest, "broker %d has no log directory %s", b.ID, dir)
		}
		_, p, ok := c.img.Partition(tp)
		if ok && slices.Contains(p.Replicas, b.ID) && p.Dir(b.ID) != dir {
			record.Assignments = append(record.Assignments, command.DirAssignment{Partition: tp, Dir: dir})
		}
	}
	if len(record.Assignments) == 0 {
		return nil, nil
	}
	slices.SortFunc(record.Assignments, func(a, b command.DirAssignment) int {
		return cmp.Or(bytes.Compare(a.Partition.Topic[:], b.Partition.Topic[:]), cmp.Compare(a.Partition.Partition, b.Partition.Partition))
	})
	if err := c.propose([]command.Record{record}); err != nil {
		return nil, err
	}
	c.dirty = true // a replica that left a failed directory may lead again
	c.reconcile()
	return nil, nil
}
