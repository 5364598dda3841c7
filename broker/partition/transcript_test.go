package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// TestRules runs the transcripts of testdata. Commands:
//
//	new [flush] [compact] [stamp] [tiered] [segment=B] [max=B] [min-isr=N]
//	become leader=ID epoch=E [pe=E] [replicas=1,2] [isr=1,2]   resign
//	append [n=1] [acks=-1] [pid=ID pe=E seq=S] [txn] [keys=a,-,b] [ts=1,2] [corrupt] [base=O] [times=1] [epoch=E] [nowait]
//	marker pid=ID pe=E (commit|abort)
//	read offset=O [max=B] [committed] [replica=ID] [epoch=E] [last-epoch=E]
//	list ts=T [committed]     epoch-end epoch=E [current=E]
//	delete offset=O           advance to=O
//	roll    publish [count=N]    trim below=O    after D (moves the clock)
//
// Offsets of the state line: log start, local start, remote end, last stable,
// high watermark, flushed, log end.
func TestRules(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var f *fixture
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				f = newFixture(t, scriptSettings(t, d))
				return ""
			}
			f.t = t
			out, err := run(f, d)
			if err != nil {
				out += fmt.Sprintf("error: %v\n", err)
				var invalid *InvalidRecordError
				if errors.As(err, &invalid) {
					for _, r := range invalid.Records {
						out += fmt.Sprintf("  record %d: %s\n", r.BatchIndex, r.Message)
					}
				}
			}
			return out
		})
	})
}

func scriptSettings(t *testing.T, d *datadriven.TestData) config.Topic {
	s := testSettings()
	if d.HasArg("flush") {
		s.FlushMessages = 1
	}
	if d.HasArg("compact") {
		s.CleanupPolicy = config.CleanupCompact
	}
	if d.HasArg("stamp") {
		s.TimestampType = config.LogAppendTime
	}
	s.Tiered = d.HasArg("tiered")
	d.MaybeScanArgs(t, "segment", &s.SegmentBytes)
	d.MaybeScanArgs(t, "max", &s.MaxMessageBytes)
	d.MaybeScanArgs(t, "min-isr", &s.MinInsyncReplicas)
	var before int64
	if d.MaybeScanArgs(t, "before", &before) {
		s.TimestampBeforeMax = time.Duration(before) * time.Millisecond
	}
	return s
}

func run(f *fixture, d *datadriven.TestData) (string, error) {
	ctx := context.Background()
	arg := func(name string, otherwise int64) int64 {
		d.MaybeScanArgs(f.t.(*testing.T), name, &otherwise)
		return otherwise
	}
	switch d.Cmd {
	case "become":
		return f.state(), f.p.Become(ctx, scriptLeadership(f, d))
	case "resign":
		f.p.Resign()
		return f.state(), nil
	case "append":
		return scriptAppend(f, d, arg)
	case "marker":
		return scriptMarker(f, d, arg)
	case "read":
		return scriptRead(f, d, arg)
	case "list":
		r, err := f.p.ListOffset(ctx, ListOffsetRequest{Timestamp: arg("ts", 0), ReadCommitted: d.HasArg("committed"), Replica: cluster.NoBroker, CurrentLeaderEpoch: cluster.LeaderEpoch(arg("epoch", -1))})
		return fmt.Sprintf("offset %d, timestamp %d, epoch %d\n", r.Offset, r.Timestamp, r.LeaderEpoch), err
	case "epoch-end":
		epoch, end, err := f.p.EpochEnd(cluster.LeaderEpoch(arg("current", -1)), cluster.LeaderEpoch(arg("epoch", 0)))
		return fmt.Sprintf("epoch %d ends at %d\n", epoch, end), err
	case "delete":
		low, err := f.p.DeleteRecords(ctx, cluster.Offset(arg("offset", 0)))
		return fmt.Sprintf("low watermark %d\n", low) + f.state(), err
	case "advance":
		start, err := f.p.AdvanceLogStart(ctx, cluster.Offset(arg("to", 0)))
		return fmt.Sprintf("log start %d\n", start) + f.state(), err
	case "roll":
		err := f.p.Roll()
		f.p.flushers.Wait()
		return f.state(), err
	case "publish":
		return scriptPublish(f, arg("count", 1000)), nil
	case "trim":
		n, _, err := f.p.TrimLocal(cluster.Offset(arg("below", 0)))
		return fmt.Sprintf("%d segments\n", n) + f.state(), err
	case "after":
		d, err := time.ParseDuration(d.CmdArgs[0].Key)
		f.now = f.now.Add(d)
		return "", err
	}
	f.t.Fatalf("unknown command %q", d.Cmd)
	return "", nil
}

func (f *fixture) state() string {
	s := f.p.Status()
	return fmt.Sprintf("start %d local %d remote-end %d stable %d high-watermark %d flushed %d end %d\n",
		s.LogStartOffset, s.LocalLogStartOffset, s.RemoteEndOffset, s.LastStableOffset, s.HighWatermark, s.FlushedOffset, s.LogEndOffset)
}

func scriptLeadership(f *fixture, d *datadriven.TestData) Leadership {
	t := f.t.(*testing.T)
	var leader, epoch, partitionEpoch int32
	d.ScanArgs(t, "leader", &leader)
	d.ScanArgs(t, "epoch", &epoch)
	d.MaybeScanArgs(t, "pe", &partitionEpoch)
	l := Leadership{Leader: cluster.BrokerID(leader), LeaderEpoch: cluster.LeaderEpoch(epoch), PartitionEpoch: cluster.PartitionEpoch(partitionEpoch)}
	ids := func(name string) []cluster.BrokerID {
		if !d.HasArg(name) {
			return []cluster.BrokerID{self}
		}
		var out []cluster.BrokerID
		for _, a := range d.CmdArgs {
			if a.Key != name {
				continue
			}
			for _, v := range a.Vals {
				var id int32
				_, err := fmt.Sscan(v, &id)
				require.NoError(t, err)
				out = append(out, cluster.BrokerID(id))
			}
		}
		return out
	}
	l.Replicas, l.ISR = ids("replicas"), ids("isr")
	return l
}

func scriptAppend(f *fixture, d *datadriven.TestData, arg func(string, int64) int64) (string, error) {
	var o recordbatch.Options
	if d.HasArg("pid") {
		o.Producer = &recordbatch.Producer{ID: cluster.ProducerID(arg("pid", 0)), Epoch: cluster.ProducerEpoch(arg("pe", 0)), BaseSequence: int32(arg("seq", 0))}
	}
	o.Transactional = d.HasArg("txn")
	b := recordbatch.NewBuilder(o)
	keys, stamps := vals(d, "keys"), vals(d, "ts")
	for i := range max(int(arg("n", 1)), len(keys), len(stamps)) {
		key, ts := []byte("k"), f.now.UnixMilli()
		if i < len(keys) && keys[i] == "-" {
			key = nil
		}
		if i < len(stamps) {
			var ahead int64
			_, _ = fmt.Sscan(stamps[i], &ahead)
			ts = startTime.UnixMilli() + ahead
		}
		b.Add(ts, key, fmt.Appendf(nil, "value %04d", i))
	}
	batch := b.Build()
	var data []byte
	for range arg("times", 1) {
		data = append(data, batch...)
	}
	if d.HasArg("corrupt") {
		data[len(data)-1] ^= 1
	}
	if d.HasArg("cut") {
		data = data[:len(data)-1]
	}
	if d.HasArg("base") {
		batch = data
		batch.SetBaseOffset(cluster.Offset(arg("base", 0)))
	}
	result, commit, err := f.p.Append(AppendRequest{Records: data, CurrentLeaderEpoch: cluster.LeaderEpoch(arg("epoch", -1)), RequiredAcks: int16(arg("acks", -1))})
	if err != nil {
		return f.state(), err
	}
	out := fmt.Sprintf("offsets %d-%d epoch %d", result.BaseOffset, result.LastOffset, result.LeaderEpoch)
	if result.LogAppendTime >= 0 {
		out += fmt.Sprintf(" stamped +%d", result.LogAppendTime-startTime.UnixMilli())
	}
	if result.Duplicate {
		out += " duplicate"
	}
	if commit != nil && !d.HasArg("nowait") {
		err = commit.Err()
		out += " waited"
	} else if commit != nil {
		out += " waits"
	}
	f.p.flushers.Wait() // a sealed segment is synced in the background
	return out + "\n" + f.state(), err
}

func vals(d *datadriven.TestData, name string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return a.Vals
		}
	}
	return nil
}

func scriptMarker(f *fixture, d *datadriven.TestData, arg func(string, int64) int64) (string, error) {
	kind := recordbatch.ControlCommit
	if d.HasArg("abort") {
		kind = recordbatch.ControlAbort
	}
	b := recordbatch.NewMarkerBatch(recordbatch.Options{
		Producer: &recordbatch.Producer{ID: cluster.ProducerID(arg("pid", 0)), Epoch: cluster.ProducerEpoch(arg("pe", 0)), BaseSequence: recordbatch.NoSequence},
	}, f.now.UnixMilli(), recordbatch.Marker{Type: kind})
	_, _, err := f.p.Append(AppendRequest{Records: b, CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1, Origin: FromCoordinator})
	return f.state(), err
}

func scriptRead(f *fixture, d *datadriven.TestData, arg func(string, int64) int64) (string, error) {
	req := ReadRequest{
		Offset: cluster.Offset(arg("offset", 0)), MaxBytes: int(arg("max", 1<<20)), MinOneBatch: true, ReadCommitted: d.HasArg("committed"),
		CurrentLeaderEpoch: cluster.LeaderEpoch(arg("epoch", -1)), LastFetchedEpoch: cluster.LeaderEpoch(arg("last-epoch", -1)),
		Replica: cluster.BrokerID(arg("replica", -1)),
	}
	r, err := f.p.Read(req)
	if err != nil {
		return "", err
	}
	if r.Diverging != nil {
		return fmt.Sprintf("diverging: epoch %d ends at %d\n", r.Diverging.LeaderEpoch, r.Diverging.EndOffset), nil
	}
	where := "local"
	if r.Remote {
		where = "remote"
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if r, err = f.p.ReadRemote(ctx, req); err != nil {
			return "remote\n", err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", where)
	for _, batch := range batchesOf(f.t, bytesOf(f.t, &r)) {
		require.NoError(f.t, batch.Verify())
		fmt.Fprintf(&b, " [%d-%d]", batch.BaseOffset(), batch.LastOffset())
	}
	for _, a := range r.Aborted {
		fmt.Fprintf(&b, " aborted(%d from %d)", a.ProducerID, a.First)
	}
	fmt.Fprintf(&b, " next %d, start %d stable %d high-watermark %d\n", r.NextOffset, r.LogStartOffset, r.LastStableOffset, r.HighWatermark)
	return b.String(), nil
}

func scriptPublish(f *fixture, count int64) string {
	end, _ := f.remote.RemoteEndOffset(testTP)
	segments, epoch := f.p.Archivable(end)
	out := ""
	for i, s := range segments {
		if int64(i) == count {
			break
		}
		f.remote.publish(f.t, f.p, s)
		out += fmt.Sprintf("published %d-%d under epoch %d\n", s.Base, s.Next, epoch)
	}
	f.p.RemoteAdvanced()
	return out + f.state()
}
