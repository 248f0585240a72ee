/*
 * The jobs of driver_lines.py and the member of group_member.py with Kafka's own Java client.
 * They are called alike and print the same lines.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Driver {
    static final ObjectMapper JSON = new ObjectMapper();
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static final int LARGE = 900_000;
    static final int TOO_LARGE = 2_000_000;
    static final int CLIENT_LIMIT = 4_000_000;
    static final int LONG_VALUE = 1000;
    static final int BURST = 25;
    static final int PAUSE_MS = 20;

    public static void main(String[] words) throws Exception {
        JsonNode conf = JSON.readTree(words[1]);
        switch (words[0]) {
            case "produce" -> produce(conf);
            case "read" -> read(conf);
            case "offsets" -> offsets(conf);
            case "admin" -> admin(conf);
            case "large" -> large(conf);
            case "transact" -> transact(conf);
            case "transform" -> transform(conf);
            case "member" -> new Member(conf).run();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    // -- lines -------------------------------------------------------------------------------

    static synchronized void say(Object... pairs) {
        Map<String, Object> line = new TreeMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            line.put((String) pairs[at], pairs[at + 1]);
        }
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        System.out.flush();
    }

    static String shown(byte[] value) throws Exception {
        if (value == null) {
            return null;
        }
        if (value.length > LONG_VALUE) {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(value));
        }
        return new String(value, StandardCharsets.UTF_8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] largeValue(int size) {
        byte[] value = new byte[size];
        for (int at = 0; at < size; at++) {
            value[at] = (byte) (at % 1000 * 7 % 251);
        }
        return value;
    }

    static void until(Callable<Boolean> look, String what) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!look.call()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("it never came: " + what);
            }
            Thread.sleep(50);
        }
    }

    // -- clients -----------------------------------------------------------------------------

    static Properties with(JsonNode conf, Object... pairs) {
        Properties wanted = new Properties();
        wanted.put("bootstrap.servers", conf.get("bootstrap").asText());
        wanted.put("reconnect.backoff.ms", "10");
        wanted.put("reconnect.backoff.max.ms", "200");
        for (int at = 0; at < pairs.length; at += 2) {
            wanted.put(pairs[at], String.valueOf(pairs[at + 1]));
        }
        return wanted;
    }

    static KafkaProducer<byte[], byte[]> producer(Properties wanted) {
        return new KafkaProducer<>(wanted, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties wanted) {
        wanted.put("enable.auto.commit", "false");
        wanted.put("fetch.max.wait.ms", "100");
        return new KafkaConsumer<>(wanted, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitions(JsonNode conf) {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < conf.get("partitions").asInt(); number++) {
            all.add(new TopicPartition(conf.get("topic").asText(), number));
        }
        return all;
    }

    // -- jobs --------------------------------------------------------------------------------

    static ProducerRecord<byte[], byte[]> sample(JsonNode conf, int number) {
        List<Header> headers = List.of(
                new RecordHeader("number", bytes("" + number)), new RecordHeader("empty", bytes("")));
        return new ProducerRecord<>(
                conf.get("topic").asText(),
                number % conf.get("partitions").asInt(),
                FIRST_TIMESTAMP + number,
                bytes("key-" + number % 8),
                bytes(String.format("%08d", number) + "-tide".repeat(12)),
                headers);
    }

    static void produce(JsonNode conf) throws Exception {
        int share = conf.get("count").asInt() / CODECS.size();
        for (int codec = 0; codec < CODECS.size(); codec++) {
            Properties wanted = with(
                    conf, "acks", "all", "enable.idempotence", true,
                    "compression.type", CODECS.get(codec), "linger.ms", 5);
            try (KafkaProducer<byte[], byte[]> producer = producer(wanted)) {
                for (int at = codec * share; at < (codec + 1) * share; at++) {
                    if (at % BURST == 0) {
                        Thread.sleep(PAUSE_MS);
                    }
                    int number = at;
                    producer.send(sample(conf, number), (told, error) -> {
                        if (error == null) {
                            say("acked", List.of(number, told.partition(), told.offset()));
                        } else {
                            say("failed", List.of(number, error.toString()));
                        }
                    });
                }
            }
        }
    }

    static void read(JsonNode conf) throws Exception {
        String isolation = conf.get("isolation").asText();
        int count = conf.get("count").asInt();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(
                with(conf, "isolation.level", isolation))) {
            List<TopicPartition> all = partitions(conf);
            consumer.assign(all);
            if (conf.get("timestamp").isNull()) {
                consumer.seekToBeginning(all);
            } else {
                Map<TopicPartition, Long> asked = new HashMap<>();
                all.forEach(one -> asked.put(one, conf.get("timestamp").asLong()));
                consumer.offsetsForTimes(asked).forEach((one, place) -> {
                    if (place == null) {
                        consumer.seekToEnd(List.of(one));
                    } else {
                        consumer.seek(one, place.offset());
                    }
                });
            }
            for (int seen = 0; seen < count; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    List<List<String>> headers = new ArrayList<>();
                    for (Header header : record.headers()) {
                        headers.add(List.of(header.key(), shown(header.value())));
                    }
                    Map<String, Object> told = new TreeMap<>();
                    told.put("partition", record.partition());
                    told.put("offset", record.offset());
                    told.put("key", shown(record.key()));
                    told.put("value", shown(record.value()));
                    told.put("headers", headers);
                    told.put("timestamp", record.timestamp());
                    say("record", told);
                    seen++;
                }
            }
        }
    }

    static Map<String, Long> byPartition(Map<TopicPartition, Long> offsets) {
        Map<String, Long> found = new TreeMap<>();
        offsets.forEach((one, offset) -> found.put("" + one.partition(), offset));
        return found;
    }

    static void offsets(JsonNode conf) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(with(conf))) {
            List<TopicPartition> all = partitions(conf);
            List<Map<String, Long>> at = new ArrayList<>();
            for (JsonNode timestamp : conf.get("timestamps")) {
                Map<TopicPartition, Long> asked = new HashMap<>();
                all.forEach(one -> asked.put(one, timestamp.asLong()));
                Map<TopicPartition, Long> found = new HashMap<>();
                for (Map.Entry<TopicPartition, OffsetAndTimestamp> one :
                        consumer.offsetsForTimes(asked).entrySet()) {
                    OffsetAndTimestamp place = one.getValue();
                    found.put(one.getKey(), place == null ? null : place.offset());
                }
                at.add(byPartition(found));
            }
            say(
                    "earliest", byPartition(consumer.beginningOffsets(all)),
                    "latest", byPartition(consumer.endOffsets(all)),
                    "at", at);
        }
    }

    static void large(JsonNode conf) throws Exception {
        String topic = conf.get("topic").asText();
        Properties wanted = with(conf, "max.request.size", CLIENT_LIMIT);
        try (KafkaProducer<byte[], byte[]> producer = producer(wanted)) {
            long acked = producer.send(
                    new ProducerRecord<>(topic, 0, null, largeValue(LARGE))).get().offset();
            String refused = "";
            try {
                producer.send(new ProducerRecord<>(topic, 0, null, largeValue(TOO_LARGE))).get();
            } catch (ExecutionException error) {
                refused = error.getCause().toString();
            }
            say("acked", acked, "error", refused);
        }
    }

    // -- transactions ------------------------------------------------------------------------

    static KafkaProducer<byte[], byte[]> transactional(JsonNode conf) {
        return producer(with(
                conf,
                "transactional.id", conf.get("id").asText(),
                "transaction.timeout.ms", conf.get("timeout_ms").asText(),
                "linger.ms", 5));
    }

    static void transact(JsonNode conf) throws Exception {
        String topic = conf.get("topic").asText();
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<byte[], byte[]> producer = transactional(conf)) {
            for (JsonNode words : conf.get("steps")) {
                String step = words.get(0).asText();
                try {
                    switch (step) {
                        case "init" -> producer.initTransactions();
                        case "begin" -> producer.beginTransaction();
                        case "send" -> producer.send(new ProducerRecord<>(
                                topic, words.get(1).asInt(), null, bytes(words.get(2).asText())))
                                .get();
                        case "commit" -> producer.commitTransaction();
                        case "abort" -> producer.abortTransaction();
                        case "pause" -> {
                            say("paused", true);
                            told.readLine();
                        }
                        default -> throw new IllegalArgumentException(step);
                    }
                } catch (KafkaException | ExecutionException error) {
                    say("failed", step, "error", error.toString());
                    return;
                }
                if (!step.equals("pause")) {
                    say("done", step);
                }
            }
        }
    }

    static void transform(JsonNode conf) {
        String source = conf.get("source").asText();
        String topic = conf.get("topic").asText();
        KafkaProducer<byte[], byte[]> producer = transactional(conf);
        producer.initTransactions();
        KafkaConsumer<byte[], byte[]> consumer = consumer(with(
                conf,
                "group.id", conf.get("group").asText(),
                "session.timeout.ms", conf.get("session_ms").asText(),
                "heartbeat.interval.ms", conf.get("session_ms").asInt() / 6,
                "auto.offset.reset", "earliest",
                "isolation.level", "read_committed",
                "max.poll.records", BURST));
        consumer.subscribe(List.of(source));
        for (int number = 1; ; ) {
            var batch = consumer.poll(Duration.ofMillis(200));
            if (batch.isEmpty()) {
                continue;
            }
            boolean isAborted = number++ % conf.get("abort_every").asInt() == 0;
            try {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    producer.send(new ProducerRecord<>(
                            topic, record.partition(), null, record.value()));
                    offsets.put(
                            new TopicPartition(source, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (!isAborted) {
                    producer.commitTransaction();
                }
            } catch (ProducerFencedException error) {
                throw error;
            } catch (KafkaException error) {
                isAborted = true;
            }
            if (isAborted) {
                producer.abortTransaction();
                var committed = consumer.committed(consumer.assignment());
                for (TopicPartition at : consumer.assignment()) {
                    var offset = committed.get(at);
                    consumer.seek(at, offset == null ? 0 : offset.offset());
                }
            }
            say(isAborted ? "aborted" : "committed", batch.count());
        }
    }

    // -- administration ----------------------------------------------------------------------

    static void admin(JsonNode conf) throws Exception {
        String topic = conf.get("topic").asText();
        TopicPartition zero = new TopicPartition(topic, 0);
        try (Admin client = Admin.create(with(conf))) {
            List<Integer> brokers = new ArrayList<>();
            for (Node node : client.describeCluster().nodes().get()) {
                brokers.add(node.id());
            }
            brokers.sort(null);
            NewTopic made = new NewTopic(topic, 2, (short) 3)
                    .configs(Map.of("retention.ms", "86400000"));
            client.createTopics(List.of(made)).all().get();
            String exists = "";
            try {
                client.createTopics(List.of(made)).all().get();
            } catch (ExecutionException error) {
                exists = error.getCause().toString();
            }
            until(() -> client.listTopics().names().get().contains(topic), "the topic");
            client.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            AlterConfigOp set = new AlterConfigOp(
                    new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
            client.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            until(() -> described(client, topic).partitions().size() == 3, "three partitions");
            TopicDescription described = described(client, topic);
            String retention = client.describeConfigs(List.of(resource)).all().get()
                    .get(resource).get("retention.ms").value();
            try (KafkaProducer<byte[], byte[]> producer = producer(with(conf))) {
                for (int number = 0; number < 10; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, bytes("" + number)));
                }
            }
            long low = client.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(5)))
                    .lowWatermarks().get(zero).get().lowWatermark();
            Map<String, Object> group = group(client, conf, zero);
            client.deleteTopics(List.of(topic)).all().get();
            until(() -> !client.listTopics().names().get().contains(topic), "no topic");
            say(
                    "brokers", brokers,
                    "controller", client.describeCluster().controller().get().id(),
                    "exists", exists,
                    "partitions", described.partitions().size(),
                    "replicas", described.partitions().get(0).replicas().size(),
                    "retention", retention,
                    "low", low,
                    "listed", group.get("listed"),
                    "state", group.get("state"),
                    "committed", group.get("committed"),
                    "altered", group.get("altered"),
                    "listed_after", group.get("listed_after"),
                    "gone", true);
        }
    }

    static TopicDescription described(Admin client, String topic) throws Exception {
        return client.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    static Map<String, Object> group(Admin client, JsonNode conf, TopicPartition zero)
            throws Exception {
        String group = conf.get("group").asText();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(with(conf, "group.id", group))) {
            consumer.assign(List.of(zero));
            consumer.commitSync(Map.of(zero, new OffsetAndMetadata(7)));
        }
        Map<String, Object> seen = new HashMap<>();
        seen.put("listed", listed(client, group));
        seen.put("state", client.describeConsumerGroups(List.of(group)).all().get()
                .get(group).groupState().toString());
        seen.put("committed", committed(client, group, zero));
        client.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(6))).all().get();
        seen.put("altered", committed(client, group, zero));
        client.deleteConsumerGroups(List.of(group)).all().get();
        seen.put("listed_after", listed(client, group));
        return seen;
    }

    static boolean listed(Admin client, String group) throws Exception {
        return client.listGroups().all().get().stream()
                .anyMatch(one -> one.groupId().equals(group));
    }

    static long committed(Admin client, String group, TopicPartition zero) throws Exception {
        return client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .get(zero).offset();
    }

    // -- groups ------------------------------------------------------------------------------

    /** Says what it has and reads, does what it is told: commit, or close. */
    static class Member {
        static final Map<String, String> ASSIGNORS = Map.of(
                "range", "Range", "roundrobin", "RoundRobin", "cooperative-sticky",
                "CooperativeSticky");
        final String topic;
        final KafkaConsumer<byte[], byte[]> consumer;
        final BlockingQueue<String> commands = new LinkedBlockingQueue<>();

        Member(JsonNode conf) {
            topic = conf.get("topic").asText();
            Properties wanted = with(
                    conf,
                    "group.id", conf.get("group").asText(),
                    "client.id", conf.get("client").asText(),
                    "auto.offset.reset", "earliest",
                    "session.timeout.ms", conf.get("session_ms").asText(),
                    "heartbeat.interval.ms", conf.get("heartbeat_ms").asText(),
                    "partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer."
                            + ASSIGNORS.get(conf.get("assignor").asText()) + "Assignor");
            if (!conf.get("instance").asText().isEmpty()) {
                wanted.put("group.instance.id", conf.get("instance").asText());
            }
            consumer = consumer(wanted);
        }

        void run() throws Exception {
            Thread listener = new Thread(this::listen);
            listener.setDaemon(true);
            listener.start();
            consumer.subscribe(List.of(topic));
            List<Integer> assigned = List.of();
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    say("record", List.of(
                            record.partition(), record.offset(), shown(record.value())));
                }
                List<Integer> now = numbers(consumer.assignment());
                if (!now.equals(assigned)) {
                    assigned = now;
                    say("assigned", assigned);
                }
                String command = commands.poll();
                if ("close".equals(command)) {
                    consumer.close();
                    return;
                } else if (command != null) {
                    commit();
                }
            }
        }

        void commit() {
            try {
                consumer.commitSync();
                Map<String, Long> told = new TreeMap<>();
                consumer.committed(consumer.assignment()).forEach((one, offset) ->
                        told.put("" + one.partition(), offset == null ? null : offset.offset()));
                say("committed", told);
            } catch (KafkaException error) {
                say("error", error.toString());
            }
        }

        void listen() {
            try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
                String line = lines.readLine();
                while (line != null) {
                    commands.add(line.trim());
                    line = lines.readLine();
                }
            } catch (java.io.IOException error) {
                // The end of the input is one more way to say it.
            }
            commands.add("close");
        }

        static List<Integer> numbers(Collection<TopicPartition> assigned) {
            int[] all = assigned.stream().mapToInt(TopicPartition::partition).sorted().toArray();
            return Arrays.stream(all).boxed().toList();
        }
    }
}
