// A producer and a consumer that stay for as long as standard input does.
//
// usage: Client.java ADDRESS TOPIC PARTITIONS
//
// A line of standard input is "PARTITION VALUE" to write; the answer is "sent
// OFFSET" or "refused WHY". What the consumer gets is said as it comes: "record
// PARTITION OFFSET VALUE", or "failed WHY".
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Client {
    static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    static Properties common(String address) {
        Properties p = new Properties();
        p.put("bootstrap.servers", address);
        p.put("metadata.max.age.ms", "500");
        p.put("reconnect.backoff.ms", "20");
        p.put("retry.backoff.ms", "20");
        return p;
    }

    static void read(String address, List<TopicPartition> partitions) {
        Properties p = common(address);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("fetch.max.wait.ms", "100");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (true) {
                try {
                    consumer.poll(Duration.ofMillis(200)).forEach(r -> say("record " + r.partition() + " " + r.offset() + " " + r.value()));
                } catch (Exception e) {
                    say("failed " + e);
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            partitions.add(new TopicPartition(args[1], i));
        }
        Thread reader = new Thread(() -> read(args[0], partitions));
        reader.setDaemon(true);
        reader.start();
        Properties p = common(args[0]);
        p.put("delivery.timeout.ms", "10000");
        p.put("request.timeout.ms", "5000");
        p.put("max.block.ms", "10000");
        p.put("linger.ms", "0");
        KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 2);
            try {
                say("sent " + producer.send(new ProducerRecord<>(args[1], Integer.parseInt(words[0]), null, words[1])).get(20, TimeUnit.SECONDS).offset());
            } catch (Exception e) {
                say("refused " + e);
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
