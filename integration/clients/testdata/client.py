"""One Kafka client of Python, driven line by line.

usage: client.py kafka-python|aiokafka|confluent ADDRESS

Each line of standard input is a JSON command with "op"; each line of standard
output is its answer, {"error": ...} where it failed. Bytes are base64, null is
null. Records are {partition, timestamp, key, value, headers: [[name, value]]}.
"""
import asyncio
import base64
import json
import sys
import traceback

ADDR = sys.argv[2]
TIMEOUT = 20


def raw(text):
    return None if text is None else base64.b64decode(text)


def text(data):
    return None if data is None else base64.b64encode(data).decode()


def headers_of(r):
    return [(name, raw(value)) for name, value in r['headers']]


def answer(offset, timestamp, key, value, headers):
    return {'offset': offset, 'timestamp': timestamp, 'key': text(key), 'value': text(value),
            'headers': [[name, text(v)] for name, v in headers or []]}


class KafkaPython:
    def __init__(self):
        import kafka
        self.k = kafka
        self.version = kafka.__version__

    def produce(self, topic, codec, idempotent, records):
        options = dict(bootstrap_servers=ADDR, acks='all', compression_type=None if codec == 'none' else codec, linger_ms=20)
        if idempotent:
            options['enable_idempotence'] = True
        elif not self.version.startswith('2.0'):
            options['enable_idempotence'] = False
        p = self.k.KafkaProducer(**options)
        sent = [p.send(topic, key=raw(r['key']), value=raw(r['value']), partition=r['partition'],
                       headers=headers_of(r), timestamp_ms=r['timestamp']) for r in records]
        p.flush(TIMEOUT)
        offsets = [f.get(timeout=TIMEOUT).offset for f in sent]
        p.close()
        return {'offsets': offsets}

    def consumer(self):
        return self.k.KafkaConsumer(bootstrap_servers=ADDR, consumer_timeout_ms=TIMEOUT * 1000)

    def consume(self, topic, partition, offset, count):
        c = self.consumer()
        tp = self.k.TopicPartition(topic, partition)
        c.assign([tp])
        c.seek(tp, offset)
        got = []
        while len(got) < count:
            m = next(c)
            got.append(answer(m.offset, m.timestamp, m.key, m.value, m.headers))
        c.close()
        return {'records': got}

    def offsets(self, topic, partition, timestamp):
        c = self.consumer()
        tp = self.k.TopicPartition(topic, partition)
        found = c.offsets_for_times({tp: timestamp})[tp]
        out = {'earliest': c.beginning_offsets([tp])[tp], 'latest': c.end_offsets([tp])[tp], 'at': found.offset if found else -1}
        c.close()
        return out

    def admin(self):
        return self.k.KafkaAdminClient(bootstrap_servers=ADDR)

    def create(self, topic, partitions):
        from kafka.admin import NewTopic
        a = self.admin()
        a.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)], timeout_ms=TIMEOUT * 1000)
        a.close()
        return {}

    def describe(self, topic):
        a = self.admin()
        found = a.describe_topics([topic])[0]
        a.close()
        return {'partitions': len(found['partitions'])}

    def delete(self, topic):
        a = self.admin()
        a.delete_topics([topic], timeout_ms=TIMEOUT * 1000)
        a.close()
        return {}


class AIOKafka:
    def __init__(self):
        import aiokafka
        self.k = aiokafka
        self.version = aiokafka.__version__

    def produce(self, **args):
        return asyncio.run(self._produce(**args))

    async def _produce(self, topic, codec, idempotent, records):
        p = self.k.AIOKafkaProducer(bootstrap_servers=ADDR, acks='all', compression_type=None if codec == 'none' else codec,
                                    enable_idempotence=idempotent, linger_ms=20)
        await p.start()
        try:
            sent = [await p.send(topic, key=raw(r['key']), value=raw(r['value']), partition=r['partition'],
                                 headers=headers_of(r), timestamp_ms=r['timestamp']) for r in records]
            return {'offsets': [(await asyncio.wait_for(f, TIMEOUT)).offset for f in sent]}
        finally:
            await p.stop()

    def consume(self, **args):
        return asyncio.run(self._consume(**args))

    async def _consume(self, topic, partition, offset, count):
        c = self.k.AIOKafkaConsumer(bootstrap_servers=ADDR)
        await c.start()
        try:
            tp = self.k.TopicPartition(topic, partition)
            c.assign([tp])
            c.seek(tp, offset)
            got = []
            while len(got) < count:
                m = await asyncio.wait_for(c.getone(), TIMEOUT)
                got.append(answer(m.offset, m.timestamp, m.key, m.value, m.headers))
            return {'records': got}
        finally:
            await c.stop()

    def offsets(self, **args):
        return asyncio.run(self._offsets(**args))

    async def _offsets(self, topic, partition, timestamp):
        c = self.k.AIOKafkaConsumer(bootstrap_servers=ADDR)
        await c.start()
        try:
            tp = self.k.TopicPartition(topic, partition)
            c.assign([tp])
            found = (await c.offsets_for_times({tp: timestamp}))[tp]
            return {'earliest': (await c.beginning_offsets([tp]))[tp], 'latest': (await c.end_offsets([tp]))[tp],
                    'at': found.offset if found else -1}
        finally:
            await c.stop()

    def create(self, **args):
        return asyncio.run(self._admin('create', **args))

    def describe(self, **args):
        return asyncio.run(self._admin('describe', **args))

    def delete(self, **args):
        return asyncio.run(self._admin('delete', **args))

    async def _admin(self, what, topic, partitions=0):
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic
        a = AIOKafkaAdminClient(bootstrap_servers=ADDR)
        await a.start()
        try:
            if what == 'describe':
                return {'partitions': len((await a.describe_topics([topic]))[0]['partitions'])}
            if what == 'create':
                answers = (await a.create_topics([NewTopic(topic, partitions, 1)])).topic_errors
            else:
                answers = (await a.delete_topics([topic])).topic_error_codes
            if any(one[1] for one in answers):  # it raises nothing by itself
                raise RuntimeError(answers)
            return {}
        finally:
            await a.close()


class Confluent:
    def __init__(self):
        import confluent_kafka
        from confluent_kafka.admin import AdminClient
        self.k = confluent_kafka
        self.admin_client = AdminClient({'bootstrap.servers': ADDR})
        self.version = '%s, librdkafka %s' % (confluent_kafka.version()[0] if isinstance(confluent_kafka.version(), tuple)
                                              else confluent_kafka.version(), confluent_kafka.libversion()[0])

    def produce(self, topic, codec, idempotent, records):
        p = self.k.Producer({'bootstrap.servers': ADDR, 'acks': 'all', 'compression.type': codec,
                             'enable.idempotence': idempotent, 'linger.ms': 20})
        offsets, errors = [], []

        def told(err, m):
            errors.append(str(err)) if err else offsets.append(m.offset())
        for r in records:
            p.produce(topic, value=raw(r['value']), key=raw(r['key']), partition=r['partition'],
                      headers=headers_of(r), timestamp=r['timestamp'], on_delivery=told)
        left = p.flush(TIMEOUT)
        if errors or left:
            raise RuntimeError('%s, %d left' % (errors[:3], left))
        return {'offsets': offsets}

    def consumer(self):
        return self.k.Consumer({'bootstrap.servers': ADDR, 'group.id': 'nobody', 'enable.auto.commit': False,
                                'fetch.wait.max.ms': 100})

    def consume(self, topic, partition, offset, count):
        c = self.consumer()
        c.assign([self.k.TopicPartition(topic, partition, offset)])
        got = []
        while len(got) < count:
            m = c.poll(TIMEOUT)
            if m is None:
                raise RuntimeError('only %d records of %d' % (len(got), count))
            if m.error():
                raise RuntimeError(str(m.error()))
            got.append(answer(m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers()))
        c.close()
        return {'records': got}

    def offsets(self, topic, partition, timestamp):
        c = self.consumer()
        tp = self.k.TopicPartition(topic, partition, timestamp)
        at = c.offsets_for_times([tp], timeout=TIMEOUT)[0].offset
        low, high = c.get_watermark_offsets(self.k.TopicPartition(topic, partition), timeout=TIMEOUT)
        c.close()
        return {'earliest': low, 'latest': high, 'at': at}

    def create(self, topic, partitions):
        from confluent_kafka.admin import NewTopic
        for f in self.admin_client.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=TIMEOUT).values():
            f.result(TIMEOUT)
        return {}

    def describe(self, topic):
        names = self.k.TopicCollection([topic])
        found = self.admin_client.describe_topics(names, request_timeout=TIMEOUT)[topic].result(TIMEOUT)
        return {'partitions': len(found.partitions)}

    def delete(self, topic):
        for f in self.admin_client.delete_topics([topic], operation_timeout=TIMEOUT).values():
            f.result(TIMEOUT)
        return {}


def main():
    client = {'kafka-python': KafkaPython, 'aiokafka': AIOKafka, 'confluent': Confluent}[sys.argv[1]]()
    for line in sys.stdin:
        args = json.loads(line)
        try:
            op = args.pop('op')
            out = {'version': str(client.version)} if op == 'version' else getattr(client, op)(**args)
        except Exception:
            out = {'error': traceback.format_exc()}
        print(json.dumps(out), flush=True)


main()
