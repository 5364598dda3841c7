"""A producer and a consumer of librdkafka that stay for as long as standard input does.

usage: client.py ADDRESS TOPIC PARTITIONS

A line of standard input is "PARTITION VALUE" to write; the answer is "sent
OFFSET" or "refused WHY". What the consumer gets is said as it comes: "record
PARTITION OFFSET VALUE", or "failed WHY".
"""
import sys
import threading

from confluent_kafka import Consumer, Producer, TopicPartition

ADDRESS, TOPIC, PARTITIONS = sys.argv[1], sys.argv[2], int(sys.argv[3])
COMMON = {
    'bootstrap.servers': ADDRESS, 'topic.metadata.refresh.interval.ms': 500, 'topic.metadata.refresh.fast.interval.ms': 50,
    'topic.metadata.propagation.max.ms': 2000, 'reconnect.backoff.ms': 20,
}
speaking = threading.Lock()


def say(*words):
    with speaking:
        print(*words, flush=True)


def read():
    c = Consumer({**COMMON, 'group.id': 'unused', 'enable.auto.commit': False, 'auto.offset.reset': 'earliest', 'fetch.wait.max.ms': 100})
    c.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    while True:
        m = c.poll(0.2)
        if m is None:
            continue
        if m.error():
            say('failed', m.error())
        else:
            say('record', m.partition(), m.offset(), m.value().decode())


def delivered(error, message):
    if error:
        say('refused', error)
    else:
        say('sent', message.offset())


threading.Thread(target=read, daemon=True).start()
producer = Producer({**COMMON, 'enable.idempotence': True, 'linger.ms': 0, 'delivery.timeout.ms': 10000})
for line in sys.stdin:
    partition, value = line.rstrip('\n').split(' ', 1)
    try:
        producer.produce(TOPIC, value.encode(), partition=int(partition), on_delivery=delivered)
        producer.flush(20)
    except Exception as e:  # noqa: BLE001
        say('refused', e)
