import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TransactionAbortableException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An ordinary application on kafka-clients that writes down what it sent and read, in the log format of internal/check.
 *
 * Arguments are key=value: mode (producer, transactional, group, assign), bootstrap, name, topics (comma), log; for producers
 * partitions, rate (records a second), count (0: until told to stop), size (bytes); for transactional also per_transaction and
 * abort_every; for group also group, members, commit_ms; for readers isolation. prop.NAME sets any client property.
 * SIGTERM ends it in order: a producer flushes, readers commit and close.
 */
public final class Client {
    private static final Map<String, String> options = new HashMap<>();
    /** How many records in a row go to one partition, as a sticky partitioner does it; the same in all clients. */
    private static final int RUN = 8;
    private static volatile boolean stopping = false;
    private static EventLog log;

    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            int equals = arg.indexOf('=');
            options.put(arg.substring(0, equals), arg.substring(equals + 1));
        }
        log = new EventLog(option("log", null));
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                ended.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            run();
        } finally {
            log.close();
            ended.countDown();
        }
    }

    private static void run() throws Exception {
        switch (option("mode", null)) {
            case "producer" -> produce();
            case "transactional" -> produceInTransactions();
            case "group" -> runMembers();
            case "assign" -> consumeAssigned(option("name", null));
            default -> throw new IllegalArgumentException("unknown mode");
        }
    }

    private static String option(String name, String fallback) {
        String value = options.getOrDefault(name, fallback);
        if (value == null) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return value;
    }

    private static int number(String name, int fallback) {
        return Integer.parseInt(option(name, Integer.toString(fallback)));
    }

    private static Properties properties(String clientId) {
        Properties p = new Properties();
        p.put("bootstrap.servers", option("bootstrap", null));
        p.put("client.id", clientId);
        p.put("metadata.max.age.ms", "5000");
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        p.put("key.deserializer", StringDeserializer.class.getName());
        p.put("value.deserializer", StringDeserializer.class.getName());
        return p;
    }

    private static void addGivenProperties(Properties p) {
        options.forEach((key, value) -> {
            if (key.startsWith("prop.")) {
                p.put(key.substring("prop.".length()), value);
            }
        });
    }

    // ---- producers

    /** Paces sends: await returns when record seq is due. */
    private static final class Pace {
        private final long start = System.nanoTime();
        private final double nanosPerRecord = 1e9 / number("rate", 500);

        void await(long seq) {
            long due = start + (long) (seq * nanosPerRecord);
            for (long left = due - System.nanoTime(); left > 0 && !stopping; left = due - System.nanoTime()) {
                LockSupport.parkNanos(Math.min(left, 20_000_000));
            }
        }
    }

    private static ProducerRecord<String, String> record(String name, long seq, String topic, int partition) {
        String identity = name + "/" + seq;
        int padding = number("size", 100) - identity.length() - 1;
        String value = padding > 0 ? identity + " " + "x".repeat(padding) : identity;
        return new ProducerRecord<>(topic, partition, identity, value);
    }

    private static Properties producerProperties(String name) {
        Properties p = properties(name);
        p.put("enable.idempotence", "true");
        p.put("acks", "all");
        p.put("max.in.flight.requests.per.connection", "5");
        p.put("linger.ms", "20");
        p.put("delivery.timeout.ms", "300000");
        p.put("max.block.ms", "300000");
        return p;
    }

    private static void produce() {
        String name = option("name", null);
        String[] topics = option("topics", null).split(",");
        int partitions = number("partitions", 1);
        long count = number("count", 0);
        Properties p = producerProperties(name);
        addGivenProperties(p);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
            Pace pace = new Pace();
            for (long seq = 0; !stopping && (count == 0 || seq < count); seq++) {
                pace.await(seq);
                if (stopping) {
                    break;
                }
                int slot = (int) (seq / RUN % ((long) partitions * topics.length));
                send(producer, name, seq, topics[slot / partitions], slot % partitions);
            }
            log.client("stopping", name);
            producer.flush();
        } catch (RuntimeException e) {
            log.error(name, e);
        }
        log.client("stopped", name);
    }

    private static void send(KafkaProducer<String, String> producer, String name, long seq, String topic, int partition) {
        log.line("sent", name + " " + seq + " " + topic + " " + partition);
        try {
            producer.send(record(name, seq, topic, partition), (metadata, e) -> {
                if (e == null) {
                    log.line("acked", name + " " + seq + " " + topic + " " + metadata.partition() + " " + metadata.offset());
                } else {
                    log.line("failed", name + " " + seq + " " + topic + " " + partition + " " + EventLog.oneLine(e));
                }
            });
        } catch (RuntimeException e) {
            log.line("failed", name + " " + seq + " " + topic + " " + partition + " " + EventLog.oneLine(e));
        }
    }

    /** Records of an aborted transaction get sequences that are logged nowhere: who reads one reads a record that no one sent. */
    private static void produceInTransactions() {
        String name = option("name", null);
        Properties p = producerProperties(name);
        p.put("transactional.id", name);
        addGivenProperties(p);
        long count = number("count", 0);
        int perTransaction = number("per_transaction", 5);
        int abortEvery = number("abort_every", 4);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
            producer.initTransactions();
            Pace pace = new Pace();
            long seq = 0;
            for (long turn = 1; !stopping && (count == 0 || seq < count); turn++) {
                pace.await(seq);
                boolean abort = abortEvery > 0 && turn % abortEvery == 0;
                transact(producer, name, seq, perTransaction, abort);
                seq += perTransaction;
            }
            log.client("stopping", name);
        } catch (RuntimeException e) {
            log.error(name, e);
        }
        log.client("stopped", name);
    }

    private static void transact(KafkaProducer<String, String> producer, String name, long first, int records, boolean abort) {
        String topic = option("topics", null);
        int partitions = number("partitions", 1);
        long[] offsets = new long[records];
        try {
            producer.beginTransaction();
            long sentAt = System.currentTimeMillis();
            for (int i = 0; i < records; i++) {
                int at = i;
                producer.send(record(name, first + i, topic, (int) ((first + i) % partitions)),
                    (RecordMetadata metadata, Exception e) -> offsets[at] = e == null ? metadata.offset() : -1);
            }
            producer.flush();
            if (abort) {
                producer.abortTransaction();
                return;
            }
            producer.commitTransaction();
            for (int i = 0; i < records; i++) {
                String place = name + " " + (first + i) + " " + topic + " " + (first + i) % partitions;
                log.lineAt(sentAt, "sent", place);
                log.line("acked", place + " " + offsets[i]);
            }
        } catch (TransactionAbortableException e) {
            producer.abortTransaction();
        }
    }

    // ---- consumers

    private static Properties consumerProperties(String clientId) {
        Properties p = properties(clientId);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("isolation.level", option("isolation", "read_committed"));
        return p;
    }

    private static void runMembers() throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < number("members", 1); i++) {
            String member = option("name", null) + "-" + i;
            Thread thread = new Thread(() -> consumeInGroup(member), member);
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** Commits by hand, and not in onPartitionsRevoked: so a rebalance shows as records read again. */
    private static void consumeInGroup(String member) {
        String group = option("group", null);
        long commitNanos = number("commit_ms", 200) * 1_000_000L;
        Properties p = consumerProperties(member);
        p.put("group.id", group);
        addGivenProperties(p);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p)) {
            Map<TopicPartition, OffsetAndMetadata> due = new HashMap<>();
            consumer.subscribe(Arrays.asList(option("topics", null).split(",")), new Rebalances(member, group, due));
            long lastCommit = System.nanoTime();
            while (!stopping) {
                logRecords(consumer.poll(Duration.ofMillis(50)), member, group, due);
                if (System.nanoTime() - lastCommit >= commitNanos) {
                    commit(consumer, member, group, due);
                    lastCommit = System.nanoTime();
                }
            }
            log.client("stopping", member);
            commit(consumer, member, group, due);
        } catch (RuntimeException e) {
            log.error(member, e);
        }
        log.client("stopped", member);
    }

    private static void commit(KafkaConsumer<String, String> consumer, String member, String group, Map<TopicPartition, OffsetAndMetadata> due) {
        if (due.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(due);
            due.forEach((tp, offset) -> log.line("committed", member + " " + group + " " + tp.topic() + " " + tp.partition() + " " + offset.offset()));
        } catch (RuntimeException e) {
            log.error(member, e);
        }
        due.clear();
    }

    private static void logRecords(ConsumerRecords<String, String> records, String client, String group, Map<TopicPartition, OffsetAndMetadata> due) {
        for (ConsumerRecord<String, String> r : records) {
            int space = r.value().indexOf(' ');
            String identity = space < 0 ? r.value() : r.value().substring(0, space);
            int slash = identity.lastIndexOf('/');
            if (slash <= 0) {
                log.line("error", client + " value without identity at " + r.topic() + "-" + r.partition() + " " + r.offset());
                continue;
            }
            log.line("read", client + " " + group + " " + r.topic() + " " + r.partition() + " " + r.offset() + " "
                + identity.substring(0, slash) + " " + identity.substring(slash + 1));
            due.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
        }
    }

    private static void consumeAssigned(String name) {
        Properties p = consumerProperties(name);
        addGivenProperties(p);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p)) {
            List<TopicPartition> all = new ArrayList<>();
            for (String topic : option("topics", null).split(",")) {
                for (PartitionInfo info : consumer.partitionsFor(topic)) {
                    all.add(new TopicPartition(topic, info.partition()));
                }
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, OffsetAndMetadata> unused = new HashMap<>();
            while (!stopping) {
                logRecords(consumer.poll(Duration.ofMillis(50)), name, "-", unused);
            }
            log.client("stopping", name);
        } catch (RuntimeException e) {
            log.error(name, e);
        }
        log.client("stopped", name);
    }

    private record Rebalances(String member, String group, Map<TopicPartition, OffsetAndMetadata> due) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            log.line("assigned", member + " " + group + " " + partitions.size());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            due.keySet().removeAll(partitions);
            log.line("revoked", member + " " + group + " " + partitions.size());
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            due.keySet().removeAll(partitions);
            log.line("lost", member + " " + group + " " + partitions.size());
        }
    }

    // ---- the log

    private static final class EventLog {
        private final BufferedWriter out;
        private final Thread flusher;
        private volatile boolean closed = false;

        EventLog(String path) throws IOException {
            out = new BufferedWriter(new FileWriter(path, true), 1 << 16);
            flusher = new Thread(() -> {
                while (!closed) {
                    LockSupport.parkNanos(20_000_000);
                    flush();
                }
            });
            flusher.setDaemon(true);
            flusher.start();
        }

        static String oneLine(Throwable e) {
            StringBuilder text = new StringBuilder(e.toString());
            for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
                text.append(" caused by ").append(cause);
            }
            return text.toString().replace('\n', ' ').replace('\r', ' ');
        }

        void client(String kind, String client) {
            line(kind, client);
        }

        void error(String client, Throwable e) {
            e.printStackTrace();
            line("error", client + " " + oneLine(e));
        }

        void line(String kind, String rest) {
            lineAt(System.currentTimeMillis(), kind, rest);
        }

        synchronized void lineAt(long millis, String kind, String rest) {
            try {
                out.write(kind + " " + millis + " " + rest + "\n");
            } catch (IOException e) {
                throw new IllegalStateException("cannot write the log", e);
            }
        }

        synchronized void flush() {
            try {
                out.flush();
            } catch (IOException e) {
                throw new IllegalStateException("cannot write the log", e);
            }
        }

        void close() {
            closed = true;
            flush();
        }
    }
}
