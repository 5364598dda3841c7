"""Speaks as clients of old Kafka do: old.py ADDR VERSION produce|consume TOPIC CODEC|COUNT.

Records go in and out as JSON lines on standard input and output.
"""
import base64
import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

addr, version, verb, topic, arg = sys.argv[1:6]
version = tuple(int(n) for n in version.split("."))


def b64(b):
    return None if b is None else base64.b64encode(b).decode()


def raw(s):
    return None if s is None else base64.b64decode(s)


if verb == "produce":
    producer = KafkaProducer(bootstrap_servers=addr, api_version=version, compression_type=None if arg == "none" else arg,
                             linger_ms=50, acks=1, retries=0)
    sent = []
    for line in sys.stdin:
        r = json.loads(line)
        stamp = {} if version < (0, 10) else {"timestamp_ms": r["timestamp"]}
        sent.append(producer.send(topic, key=raw(r["key"]), value=raw(r["value"]), partition=0, **stamp))
    producer.flush()
    for future in sent:
        print(json.dumps({"offset": future.get(timeout=20).offset}))
    producer.close()
else:
    consumer = KafkaConsumer(bootstrap_servers=addr, api_version=version, group_id=None, enable_auto_commit=False,
                             fetch_max_wait_ms=100, consumer_timeout_ms=60000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    for _ in range(int(arg)):
        m = next(consumer)
        print(json.dumps({"offset": m.offset, "timestamp": m.timestamp, "key": b64(m.key), "value": b64(m.value)}))
    consumer.close()
