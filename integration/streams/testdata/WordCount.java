// Counts words, at least once: lines of the topic "lines" by words of "counts".
//
// usage: WordCount ADDRESS STATE_DIRECTORY
//
// It says "state NEW" when it goes from one state to another, and "restored STORE
// RECORDS" when a store is complete. It ends with standard input.
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

public class WordCount {
    static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    static class Restored implements StateRestoreListener {
        public void onRestoreStart(TopicPartition tp, String store, long from, long to) { }

        public void onBatchRestored(TopicPartition tp, String store, long end, long count) { }

        public void onRestoreEnd(TopicPartition tp, String store, long count) {
            say("restored " + tp + " " + count);
        }
    }

    static Properties configured(String[] args) {
        Properties p = new Properties();
        p.put("application.id", "words");
        p.put("bootstrap.servers", args[0]);
        p.put("state.dir", args[1]);
        p.put("commit.interval.ms", "200");
        p.put("repartition.purge.interval.ms", "200");
        p.put("session.timeout.ms", "3000");
        p.put("heartbeat.interval.ms", "300");
        p.put("auto.offset.reset", "earliest");
        p.put("num.stream.threads", "2");
        // Short changelog segments, cleaned as soon as another one has begun.
        p.put("topic.segment.ms", "500");
        p.put("topic.min.cleanable.dirty.ratio", "0.01");
        return p;
    }

    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, org.apache.kafka.streams.state.KeyValueStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled())
            .toStream().mapValues(String::valueOf)
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), configured(args));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setStateListener((now, before) -> say("state " + now));
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close(Duration.ofSeconds(20));
        say("closed");
        Runtime.getRuntime().halt(0);
    }
}
