"""One member of a consumer group: member.py CLIENT ADDR GROUP TOPIC PROTOCOL INSTANCE SESSION.

It reads, commits what it has read, and says so on standard output, line by line:

    ready         it joins once it has a line of standard input
    hold 0 3      the partitions that it holds from now on
    read 3 17 18  offsets of a partition that it has read
    fenced        another member has its instance id
    failed WHY    what should not happen
    left          it has left the group, as it does when standard input ends

INSTANCE is a static member's id, or empty; SESSION its timeout in ms.
"""
import asyncio
import logging
import sys
import threading

CLIENT, ADDR, GROUP, TOPIC, PROTOCOL, INSTANCE = sys.argv[1:7]
SESSION_MS, HEARTBEAT_MS = int(sys.argv[7]), 300
logging.basicConfig(level=logging.INFO, format='%(asctime)s %(name)s %(message)s')  # heard where a test fails
held = set()
stop = threading.Event()


def say(*words):
    sys.stdout.write(' '.join(str(w).replace('\n', ' ') for w in words) + '\n')
    sys.stdout.flush()


def hold(add=(), drop=()):
    held.difference_update(tp.partition for tp in drop)
    held.update(tp.partition for tp in add)
    say('hold', *sorted(held))


def wait():
    say('ready')
    sys.stdin.readline()
    threading.Thread(target=until_the_end_of_input, daemon=True).start()


def confluent():
    from confluent_kafka import Consumer, KafkaError, KafkaException
    conf = {'bootstrap.servers': ADDR, 'group.id': GROUP, 'enable.auto.commit': False, 'auto.offset.reset': 'earliest',
            'fetch.wait.max.ms': 100, 'reconnect.backoff.max.ms': 500, 'topic.metadata.refresh.interval.ms': 1000}
    if PROTOCOL == 'consumer':
        conf['group.protocol'] = 'consumer'
    else:
        conf.update({'session.timeout.ms': SESSION_MS, 'heartbeat.interval.ms': HEARTBEAT_MS,
                     'partition.assignment.strategy': 'cooperative-sticky' if PROTOCOL == 'cooperative' else 'range'})
    if INSTANCE:
        conf['group.instance.id'] = INSTANCE
    c = Consumer(conf)
    wait()
    c.subscribe([TOPIC], on_assign=lambda _, tps: hold(add=tps), on_revoke=lambda _, tps: hold(drop=tps), on_lost=lambda _, tps: hold(drop=tps))
    uncommitted = False  # what it keeps through a rebalance it does not read again
    while not stop.is_set():
        m = c.poll(0.1)
        if m is not None and m.error():
            if m.error().code() == KafkaError.FENCED_INSTANCE_ID or m.error().code() == KafkaError._FATAL:
                say('fenced', m.error())
                stop.wait()
            elif not m.error().retriable() and m.error().code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                say('failed', m.error())
            continue
        if m is not None:
            say('read', m.partition(), m.offset())
            uncommitted = True
        if not uncommitted:
            continue
        try:
            c.commit(asynchronous=False)
            uncommitted = False
        except KafkaException as e:
            uncommitted = e.args[0].code() != KafkaError._NO_OFFSET
            say('uncommitted', e)
    c.close()


def kafka_python():
    import kafka
    import kafka.errors
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(kafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            hold(drop=revoked)

        def on_partitions_assigned(self, assigned):
            hold(add=assigned)

        def on_partitions_lost(self, lost):
            hold(drop=lost)

    strategy = [RangePartitionAssignor]
    if PROTOCOL == 'cooperative':
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        strategy = [CooperativeStickyAssignor]
    options = {'group_instance_id': INSTANCE} if INSTANCE else {}
    c = kafka.KafkaConsumer(bootstrap_servers=ADDR, group_id=GROUP, enable_auto_commit=False, auto_offset_reset='earliest', fetch_max_wait_ms=100,
                            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS, partition_assignment_strategy=strategy,
                            reconnect_backoff_max_ms=500, **options)
    wait()
    c.subscribe([TOPIC], listener=Listener())
    uncommitted = False
    while not stop.is_set():
        try:
            # A poll that ends while it joins forgets what it was assigned, in
            # version 3.0.12.
            got = c.poll(timeout_ms=2000)
            for tp, records in got.items():
                say('read', tp.partition, *[r.offset for r in records])
            uncommitted = uncommitted or bool(got)
            if uncommitted:
                c.commit()
                uncommitted = False
        except kafka.errors.FencedInstanceIdError as e:
            say('fenced', e)
            stop.wait()
        except kafka.errors.KafkaError as e:
            say('uncommitted', repr(e))
    c.close()


async def aiokafka_member():
    import aiokafka
    import aiokafka.errors
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    class Listener(aiokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            hold(drop=revoked)

        async def on_partitions_assigned(self, assigned):
            hold(add=assigned)

    options = {'group_instance_id': INSTANCE} if INSTANCE else {}
    c = aiokafka.AIOKafkaConsumer(bootstrap_servers=ADDR, group_id=GROUP, enable_auto_commit=False, auto_offset_reset='earliest', fetch_max_wait_ms=100,
                                  session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
                                  partition_assignment_strategy=[RoundRobinPartitionAssignor], **options)
    wait()
    c.subscribe([TOPIC], listener=Listener())
    await c.start()
    uncommitted = False
    while not stop.is_set():
        try:
            got = await c.getmany(timeout_ms=100)
            for tp, records in got.items():
                say('read', tp.partition, *[r.offset for r in records])
            uncommitted = uncommitted or bool(got)
            if uncommitted:
                await c.commit()
                uncommitted = False
        except aiokafka.errors.FencedInstanceIdError as e:
            say('fenced', e)
            stop.wait()
        except aiokafka.errors.KafkaError as e:
            say('uncommitted', repr(e))
    await c.stop()


def until_the_end_of_input():
    sys.stdin.read()
    stop.set()


{'confluent': confluent, 'kafka-python': kafka_python, 'aiokafka': lambda: asyncio.run(aiokafka_member())}[CLIENT]()
say('left')
