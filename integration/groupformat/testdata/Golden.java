import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.*;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.group.modern.*;
import org.apache.kafka.coordinator.group.modern.consumer.*;

// Golden prints what Apache Kafka makes of samples: the bytes of records, hashes
// of topics, and what its assignors decide.
public class Golden {
    static Uuid id(String name) {
        byte[] b = Arrays.copyOf(name.getBytes(StandardCharsets.UTF_8), 16);
        java.nio.ByteBuffer buffer = java.nio.ByteBuffer.wrap(b);
        return new Uuid(buffer.getLong(), buffer.getLong());
    }

    static String name(Uuid id) {
        java.nio.ByteBuffer b = java.nio.ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits());
        return new String(b.array(), StandardCharsets.UTF_8).replace("\0", "");
    }

    static void record(String what, CoordinatorRecord r) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        byte[] value = serde.serializeValue(r);
        System.out.println("record " + what + " " + HexFormat.of().formatHex(serde.serializeKey(r))
            + " " + (value == null ? "-" : HexFormat.of().formatHex(value)));
    }

    static Map<Uuid, Map<Integer, Integer>> holding(int epoch, Object... topics) {
        Map<Uuid, Map<Integer, Integer>> h = new LinkedHashMap<>();
        for (int i = 0; i < topics.length; i += 2) {
            Map<Integer, Integer> partitions = new TreeMap<>();
            for (int p : (int[]) topics[i + 1]) partitions.put(p, epoch + p);
            h.put(id((String) topics[i]), partitions);
        }
        return h;
    }

    static Map<Uuid, Set<Integer>> assignment(Object... topics) {
        Map<Uuid, Set<Integer>> a = new LinkedHashMap<>();
        for (int i = 0; i < topics.length; i += 2) {
            a.put(id((String) topics[i]), Arrays.stream((int[]) topics[i + 1]).boxed().collect(Collectors.toCollection(TreeSet::new)));
        }
        return a;
    }

    static void records() {
        String g = "gruppe-ä";
        record("group", GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord(g, 7, -2));
        record("group-no-hash", GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord(g, 1, 0));
        record("group-gone", GroupCoordinatorRecordHelpers.newConsumerGroupEpochTombstoneRecord(g));
        record("partitions-gone", GroupCoordinatorRecordHelpers.newConsumerGroupSubscriptionMetadataTombstoneRecord(g));
        ConsumerGroupMember plain = new ConsumerGroupMember.Builder("m").setClientId("c").setClientHost("/10.0.0.1")
            .setSubscribedTopicNames(List.of("b", "a")).setRebalanceTimeoutMs(1234).build();
        record("member", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord(g, plain));
        ConsumerGroupMember all = new ConsumerGroupMember.Builder("m2").setInstanceId("i").setRackId("r").setClientId("c").setClientHost("h")
            .setSubscribedTopicNames(List.of()).setSubscribedTopicRegex("a.*").setServerAssignorName("range")
            .setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(45000).setSupportedProtocols(List.of(
                new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[] {0, 1, 2}),
                new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("sticky").setMetadata(new byte[0])))).build();
        record("member-all", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord(g, all));
        record("member-gone", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionTombstoneRecord(g, "m"));
        record("target", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentMetadataRecord(g, 9, 1_700_000_000_123L));
        record("target-no-time", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentMetadataRecord(g, 9, 0));
        record("target-gone", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentMetadataTombstoneRecord(g));
        record("target-of", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentRecord(g, "m",
            assignment("a", new int[] {0, 1, 200}, "b", new int[] {3})));
        record("target-of-nothing", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentRecord(g, "m", Map.of()));
        record("target-of-gone", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentTombstoneRecord(g, "m"));
        ConsumerGroupMember current = new ConsumerGroupMember.Builder("m").setMemberEpoch(9).setPreviousMemberEpoch(8)
            .setState(MemberState.UNREVOKED_PARTITIONS).setAssignedPartitions(holding(5, "a", new int[] {0, 1}))
            .setPartitionsPendingRevocation(holding(3, "a", new int[] {4}, "b", new int[] {0})).build();
        record("current", GroupCoordinatorRecordHelpers.newConsumerGroupCurrentAssignmentRecord(g, current));
        record("current-gone", GroupCoordinatorRecordHelpers.newConsumerGroupCurrentAssignmentTombstoneRecord(g, "m"));
        // As 4.2 and before wrote it: without the epochs of partitions.
        record("current-old", CoordinatorRecord.record(
            new ConsumerGroupCurrentMemberAssignmentKey().setGroupId(g).setMemberId("m"),
            new org.apache.kafka.server.common.ApiMessageAndVersion(new ConsumerGroupCurrentMemberAssignmentValue()
                .setMemberEpoch(4).setPreviousMemberEpoch(3).setState((byte) 0)
                .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(id("a")).setPartitions(List.of(1, 2))))
                .setPartitionsPendingRevocation(List.of()), (short) 0)));
        record("regex", GroupCoordinatorRecordHelpers.newConsumerGroupRegularExpressionRecord(g, "a.*",
            new ResolvedRegularExpression(Set.of("ab", "aa"), 77, 1_700_000_000_123L)));
        record("regex-gone", GroupCoordinatorRecordHelpers.newConsumerGroupRegularExpressionTombstone(g, "a.*"));
    }

    record Topic(String name, Uuid id, int partitionCount, List<List<String>> racks) implements CoordinatorMetadataImage.TopicMetadata {
        public List<String> partitionRacks(int p) { return new ArrayList<>(p < racks.size() ? racks.get(p) : List.of()); }
    }

    record Image(Map<String, Topic> topics) implements CoordinatorMetadataImage {
        public Set<Uuid> topicIds() { return topics.values().stream().map(Topic::id).collect(Collectors.toSet()); }
        public Set<String> topicNames() { return topics.keySet(); }
        public Optional<TopicMetadata> topicMetadata(String name) { return Optional.ofNullable(topics.get(name)); }
        public Optional<TopicMetadata> topicMetadata(Uuid id) { return topicMetadata(name(id)); }
        public CoordinatorMetadataDelta emptyDelta() { throw new UnsupportedOperationException(); }
        public long version() { return 1; }
        public boolean isEmpty() { return topics.isEmpty(); }
    }

    static void hashes() {
        List<Topic> topics = List.of(
            new Topic("a", id("a"), 1, List.of()),
            new Topic("thema-ä-😀", id("ids"), 3, List.of()),
            new Topic("racks", id("racks"), 2, List.of(List.of("z", "a"), List.of("räck"))),
            new Topic("x".repeat(200), id("long"), 50, List.of()));
        Image image = new Image(topics.stream().collect(Collectors.toMap(Topic::name, t -> t)));
        Map<String, Long> all = new HashMap<>();
        for (Topic t : topics) {
            long h = Utils.computeTopicHash(t.name(), image);
            all.put(t.name(), h);
            System.out.println("hash " + t.name() + " " + Long.toHexString(h));
        }
        System.out.println("hash * " + Long.toHexString(Utils.computeGroupHash(all)));
    }

    // assignors prints, for random groups: topics with their partition counts,
    // members as id/instance/topics/current, and the answer.
    static void assignors(String name, ConsumerGroupPartitionAssignor assignor, int n) {
        Random random = new Random(848);
        for (int i = 0; i < n; i++) {
            Map<Uuid, Integer> topics = new TreeMap<>();
            int topicCount = 1 + random.nextInt(5);
            for (int t = 0; t < topicCount; t++) topics.put(id("t" + t), 1 + random.nextInt(9));
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
            Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
            boolean alike = random.nextBoolean();
            int memberCount = 1 + random.nextInt(6);
            Set<Uuid> same = some(random, topics.keySet());
            for (int m = 0; m < memberCount; m++) {
                Set<Uuid> subscribed = alike ? same : some(random, topics.keySet());
                Map<Uuid, Set<Integer>> current = new TreeMap<>();
                for (Map.Entry<Uuid, Integer> t : topics.entrySet()) {
                    for (int p = 0; p < t.getValue(); p++) {
                        // Some have more than others, and some what they do not read.
                        if (random.nextInt(3) == 0 || inverted.getOrDefault(t.getKey(), Map.of()).containsKey(p)) continue;
                        if (!subscribed.contains(t.getKey()) && random.nextInt(4) != 0) continue;
                        inverted.computeIfAbsent(t.getKey(), k -> new HashMap<>()).put(p, "m" + m);
                        current.computeIfAbsent(t.getKey(), k -> new TreeSet<>()).add(p);
                    }
                }
                Optional<String> instance = random.nextInt(3) == 0 ? Optional.of("i" + (9 - m)) : Optional.empty();
                members.put("m" + m, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, subscribed,
                    new Assignment(Collections.unmodifiableMap(current))));
            }
            boolean homogeneous = members.values().stream().map(MemberSubscription::subscribedTopicIds).distinct().count() == 1;
            GroupAssignment answer = assignor.assign(
                new GroupSpecImpl(members, homogeneous ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, inverted),
                new SubscribedTopicDescriber() {
                    public int numPartitions(Uuid id) { return topics.getOrDefault(id, -1); }
                    public Set<String> racksForPartition(Uuid id, int p) { return Set.of(); }
                });
            StringBuilder line = new StringBuilder(name);
            topics.forEach((t, count) -> line.append(" ").append(name(t)).append("=").append(count));
            line.append(" |");
            members.forEach((id, m) -> line.append(" ").append(id).append("/").append(m.instanceId().orElse("")).append("/")
                .append(m.subscribedTopicIds().stream().map(Golden::name).sorted().collect(Collectors.joining("+"))).append("/").append(text(m.partitions())));
            line.append(" |");
            members.keySet().forEach(id -> line.append(" ").append(id).append("/")
                .append(answer.members().containsKey(id) ? text(answer.members().get(id).partitions()) : ""));
            System.out.println(line);
        }
    }

    static Set<Uuid> some(Random random, Set<Uuid> all) {
        Set<Uuid> some = new TreeSet<>();
        for (Uuid t : all) if (random.nextInt(3) != 0) some.add(t);
        return some;
    }

    static String text(Map<Uuid, Set<Integer>> partitions) {
        return new TreeMap<>(partitions).entrySet().stream().filter(e -> !e.getValue().isEmpty())
            .map(e -> name(e.getKey()) + ":" + e.getValue().stream().sorted().map(String::valueOf).collect(Collectors.joining(".")))
            .collect(Collectors.joining("+"));
    }

    public static void main(String[] args) {
        records();
        hashes();
        assignors("range", new RangeAssignor(), 100);
        assignors("uniform", new UniformAssignor(), 300);
    }
}
