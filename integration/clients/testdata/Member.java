// One member of a consumer group by Apache Kafka's consumer; it says what
// member.py says.
//
// usage: Member ADDRESS GROUP TOPIC PROTOCOL INSTANCE SESSION
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Member {
    static final TreeSet<Integer> held = new TreeSet<>();
    static volatile boolean leaving;
    static boolean uncommitted;

    static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    static void hold() {
        say("hold " + held.stream().map(String::valueOf).collect(Collectors.joining(" ")));
    }

    static class Listener implements ConsumerRebalanceListener {
        public void onPartitionsRevoked(Collection<TopicPartition> parts) {
            parts.forEach(tp -> held.remove(tp.partition()));
            hold();
        }

        public void onPartitionsAssigned(Collection<TopicPartition> parts) {
            parts.forEach(tp -> held.add(tp.partition()));
            hold();
        }
    }

    static Properties configured(String[] args) {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("group.id", args[1]);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("fetch.max.wait.ms", "100");
        p.put("reconnect.backoff.max.ms", "500");
        if (args[3].equals("consumer")) {
            p.put("group.protocol", "consumer");
        } else {
            p.put("session.timeout.ms", args[5]);
            p.put("heartbeat.interval.ms", "300");
            p.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer."
                + (args[3].equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor"));
        }
        if (!args[4].isEmpty()) {
            p.put("group.instance.id", args[4]);
        }
        return p;
    }

    static void read(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> got = consumer.poll(Duration.ofMillis(100));
        for (TopicPartition tp : got.partitions()) {
            say("read " + tp.partition() + got.records(tp).stream().map(r -> " " + r.offset()).collect(Collectors.joining()));
        }
        // What it keeps through a rebalance it does not read again.
        uncommitted |= !got.isEmpty();
        if (uncommitted) {
            consumer.commitSync(Duration.ofSeconds(20));
            uncommitted = false;
        }
    }

    public static void main(String[] args) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(configured(args), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException e) {
                say("failed " + e);
            }
            leaving = true;
        });
        input.setDaemon(true);
        say("ready");
        System.in.read();
        input.start();
        if (args[2].startsWith("^")) { // as librdkafka has it: the broker's to match
            consumer.subscribe(new SubscriptionPattern(args[2]), new Listener());
        } else {
            consumer.subscribe(List.of(args[2]), new Listener());
        }
        while (!leaving) {
            try {
                read(consumer);
            } catch (FencedInstanceIdException e) {
                say("fenced " + e);
                input.join();
            } catch (KafkaException e) {
                say("uncommitted " + e);
            }
        }
        consumer.close();
        say("left");
    }
}
