package config

import "time"

// Cleaner is what the keys of a node say of compaction.
type Cleaner struct {
	Enabled        bool // log.cleaner.enable
	Threads        int32
	Backoff        time.Duration
	DedupeBytes    int64   // log.cleaner.dedupe.buffer.size, of all threads together
	BufferBytes    int32   // log.cleaner.io.buffer.size, of all threads together
	BytesPerSecond float64 // log.cleaner.io.max.bytes.per.second
}

// cleanerKeys are the keys of the cleaner.
func cleanerKeys() []Key {
	return []Key{
		def("log.cleaner.enable", Bool, "true", nil, "Whether topics with cleanup.policy=compact are compacted."),
		clusterWide(def("log.cleaner.threads", Int, "1", atLeast(0), "Partitions that are compacted at once; 0: none.")),
		clusterWide(def("log.cleaner.backoff.ms", Long, "15000", atLeast(0), "How long the cleaner sleeps where nothing is to be compacted.")),
		clusterWide(def("log.cleaner.dedupe.buffer.size", Long, "134217728", atLeast(1<<20),
			"Memory for the newest keys, of all threads together. However many keys a log has, they are merged into the key index on disk in portions of that size.")),
		clusterWide(def("log.cleaner.io.buffer.size", Int, "524288", atLeast(0), "How much of a log is read or written at a time, of all threads together.")),
		clusterWide(def("log.cleaner.io.max.bytes.per.second", Double, "1.7976931348623157E308", nil,
			"How much all threads together read and write a second at most; less than 1 counts as 1.")),
		clusterWide(def("log.cleaner.io.buffer.load.factor", Double, "0.9", nil, "How full the deduplication buffer may be.").
			ignored("the memory of log.cleaner.dedupe.buffer.size is what it takes, with the room that it keeps free")),
	}
}

func cleaner(b *Broker, v values) error {
	b.Cleaner = EffectiveCleaner(Layers{Static: v})
	return nil
}

// EffectiveCleaner combines the levels.
func EffectiveCleaner(l Layers) Cleaner {
	enabled, _ := l.brokerValue("log.cleaner.enable").(bool)
	number := func(name string) int64 { n, _ := l.brokerValue(name).(int64); return n }
	rate, _ := l.brokerValue("log.cleaner.io.max.bytes.per.second").(float64)
	return Cleaner{
		Enabled: enabled, Threads: int32(number("log.cleaner.threads")), Backoff: duration(number("log.cleaner.backoff.ms")),
		DedupeBytes: number("log.cleaner.dedupe.buffer.size"), BufferBytes: int32(number("log.cleaner.io.buffer.size")), BytesPerSecond: rate,
	}
}

// brokerValue is the value of a broker key, as parse gives it.
func (l Layers) brokerValue(name string) any {
	k := brokerTable.byName[name]
	for _, lv := range l.levels() {
		if raw, ok := lv.values[name]; ok && (k.Dynamic != ReadOnly || lv.source == SourceStatic) {
			if _, v, err := k.parse(raw); err == nil {
				return v
			}
		}
	}
	_, v, _ := k.parse(k.Default)
	return v
}
