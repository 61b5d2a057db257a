"""An ordinary application on librdkafka (confluent-kafka) that writes down what it sent and read, in the log format of
internal/check.

Arguments are key=value: mode (producer, group, assign), bootstrap, name, topics (comma), log; for producers partitions, rate
(records a second), count (0: until told to stop), size (bytes); for group also group, commit_ms (one member per process); for
readers isolation. prop.NAME sets any client property. SIGTERM ends it in order: a producer flushes, readers commit and close.
"""

import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, OFFSET_BEGINNING, Producer, TopicPartition

# How many records in a row go to one partition, as a sticky partitioner does it; the same in all clients.
RUN = 8


class EventLog:
    def __init__(self, path):
        self.out = open(path, "a", buffering=1 << 16)
        self.flushed = time.monotonic()

    def line(self, kind, *fields):
        self.out.write("%s %d %s\n" % (kind, time.time() * 1000, " ".join(map(str, fields))))

    def error(self, client, text):
        self.line("error", client, str(text).replace("\n", " "))

    def flush_if_due(self):
        now = time.monotonic()
        if now - self.flushed >= 0.02:
            self.out.flush()
            self.flushed = now


class Client:
    def __init__(self, options):
        self.options = options
        self.name = options["name"]
        self.topics = options["topics"].split(",")
        self.log = EventLog(options["log"])
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)

    def stop(self, *_):
        self.stopping = True

    def number(self, name, fallback):
        return int(self.options.get(name, fallback))

    def properties(self, **given):
        props = {
            "bootstrap.servers": self.options["bootstrap"],
            "client.id": self.name,
            "topic.metadata.refresh.interval.ms": 5000,
            "error_cb": self.on_error,
        }
        props.update({key.replace("_", "."): value for key, value in given.items()})
        props.update({key[5:]: value for key, value in self.options.items() if key.startswith("prop.")})
        return props

    def on_error(self, err):
        # librdkafka reports here whatever it retries by itself, as "informational"; an application acts on fatal ones.
        if err.fatal():
            self.log.error(self.name, "fatal: %s" % err)
        else:
            print("client message: %s" % err, file=sys.stderr, flush=True)

    def run(self):
        mode = {"producer": self.produce, "group": self.consume_in_group, "assign": self.consume_assigned}
        try:
            mode[self.options["mode"]]()
        except Exception as err:  # whatever the application sees is an event
            self.log.error(self.name, repr(err))
        self.log.line("stopped", self.name)
        self.log.out.close()

    # ---- producer

    def produce(self):
        producer = Producer(self.properties(
            enable_idempotence="true", acks="all", linger_ms=20, delivery_timeout_ms=300000,
            max_in_flight_requests_per_connection=5))
        rate, count = self.number("rate", 500), self.number("count", 0)
        start, seq = time.monotonic(), 0
        while not self.stopping and (count == 0 or seq < count):
            wait = start + seq / rate - time.monotonic()
            if wait > 0:
                producer.poll(min(wait, 0.02))
                self.log.flush_if_due()
                continue
            self.send(producer, seq)
            seq += 1
        self.log.line("stopping", self.name)
        left = producer.flush(300)
        if left:
            self.log.error(self.name, "%d records left after flush" % left)

    def send(self, producer, seq):
        partitions = self.number("partitions", 1)
        slot = seq // RUN % (partitions * len(self.topics))
        topic, partition = self.topics[slot // partitions], slot % partitions
        identity = "%s/%d" % (self.name, seq)
        value = (identity + " ").ljust(self.number("size", 100), "x")
        self.log.line("sent", self.name, seq, topic, partition)

        def delivered(err, msg):
            if err is None:
                self.log.line("acked", self.name, seq, topic, msg.partition(), msg.offset())
            else:
                self.log.line("failed", self.name, seq, topic, partition, str(err).replace("\n", " "))

        while True:
            try:
                producer.produce(topic, value=value, key=identity, partition=partition, on_delivery=delivered)
                return
            except BufferError:  # the local queue is full: an application waits
                producer.poll(0.1)
                self.log.flush_if_due()
            except KafkaException as err:
                self.log.line("failed", self.name, seq, topic, partition, str(err).replace("\n", " "))
                return

    # ---- consumers

    def consumer(self, group):
        return Consumer(self.properties(
            group_id=group, auto_offset_reset="earliest", enable_auto_commit="false", enable_auto_offset_store="false",
            isolation_level=self.options.get("isolation", "read_committed")))

    def log_messages(self, consumer, group, due):
        for msg in consumer.consume(500, 0.05):
            if msg.error():
                if msg.error().code() != KafkaError._PARTITION_EOF:
                    self.log.error(self.name, msg.error())
                continue
            identity = (msg.value() or b"").split(b" ", 1)[0].decode()
            producer, slash, seq = identity.rpartition("/")
            if not slash:
                self.log.error(self.name, "value without identity at %s-%d %d" % (msg.topic(), msg.partition(), msg.offset()))
                continue
            self.log.line("read", self.name, group, msg.topic(), msg.partition(), msg.offset(), producer, seq)
            due[(msg.topic(), msg.partition())] = msg.offset() + 1
        self.log.flush_if_due()

    def consume_in_group(self):
        group, commit_every = self.options["group"], self.number("commit_ms", 200) / 1000
        consumer, due = self.consumer(group), {}

        def drop(partitions):
            for tp in partitions:
                due.pop((tp.topic, tp.partition), None)

        def assigned(_, partitions):
            self.log.line("assigned", self.name, group, len(partitions))

        def revoked(_, partitions):
            drop(partitions)
            self.log.line("revoked", self.name, group, len(partitions))

        def lost(_, partitions):
            drop(partitions)
            self.log.line("lost", self.name, group, len(partitions))

        consumer.subscribe(self.topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)
        committed = time.monotonic()
        while not self.stopping:
            self.log_messages(consumer, group, due)
            if time.monotonic() - committed >= commit_every:
                self.commit(consumer, group, due)
                committed = time.monotonic()
        self.log.line("stopping", self.name)
        self.commit(consumer, group, due)
        consumer.close()

    def commit(self, consumer, group, due):
        if not due:
            return
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in due.items()]
        try:
            for tp in consumer.commit(offsets=offsets, asynchronous=False):
                if tp.error:
                    self.log.error(self.name, "commit of %s-%d: %s" % (tp.topic, tp.partition, tp.error))
                else:
                    self.log.line("committed", self.name, group, tp.topic, tp.partition, tp.offset)
        except KafkaException as err:
            self.log.error(self.name, err)
        due.clear()

    def consume_assigned(self):
        consumer = self.consumer(self.name + "-unused")
        parts = []
        for topic in self.topics:
            for partition in consumer.list_topics(topic, 30).topics[topic].partitions:
                parts.append(TopicPartition(topic, partition, OFFSET_BEGINNING))
        consumer.assign(parts)
        while not self.stopping:
            self.log_messages(consumer, "-", {})
        self.log.line("stopping", self.name)
        consumer.close()


if __name__ == "__main__":
    Client(dict(arg.split("=", 1) for arg in sys.argv[1:])).run()
