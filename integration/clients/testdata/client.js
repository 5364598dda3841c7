// kafkajs, driven line by line as client.py is.
//
// usage: node client.js NODE_MODULES ADDRESS
const path = require('path')
const readline = require('readline')
const modules = process.argv[2]
const load = name => require(path.join(modules, name))
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = load('kafkajs')
const lz4 = load('lz4js')
const { ZstdCodec } = load('zstd-codec')

CompressionCodecs[CompressionTypes.Snappy] = load('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
const zstd = new Promise(resolve => ZstdCodec.run(z => resolve(new z.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
})
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }

const kafka = new Kafka({ clientId: 'kafkajs', brokers: [process.argv[3]], logLevel: logLevel.NOTHING })
const raw = text => (text === null ? null : Buffer.from(text, 'base64'))

async function withAdmin(f) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await f(admin)
  } finally {
    await admin.disconnect()
  }
}

const ops = {
  version: async () => ({ version: load('kafkajs/package.json').version }),
  async produce({ topic, codec, idempotent, records }) {
    const producer = kafka.producer({ idempotent, allowAutoTopicCreation: false, createPartitioner: () => ({ message }) => message.partition })
    await producer.connect()
    try {
      const messages = records.map(r => {
        const headers = {}
        for (const [name, value] of r.headers) headers[name] = name in headers ? [].concat(headers[name], raw(value)) : raw(value)
        return { partition: r.partition, key: raw(r.key), value: raw(r.value), timestamp: String(r.timestamp), headers }
      })
      await producer.send({ topic, acks: -1, compression: codecs[codec], messages })
      return {}
    } finally {
      await producer.disconnect()
    }
  },
  offsets: ({ topic, partition, timestamp }) => withAdmin(async admin => {
    const all = (await admin.fetchTopicOffsets(topic)).find(p => p.partition === partition)
    const at = (await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)).find(p => p.partition === partition)
    return { earliest: Number(all.low), latest: Number(all.high), at: Number(at.offset) }
  }),
  // In a group of its own, from an offset on: kafkajs has no other consumer.
  async consume({ topic, partition, offset, count }) {
    const consumer = kafka.consumer({ groupId: 'reader-' + topic + '-' + offset, maxWaitTimeInMs: 100 })
    await consumer.connect()
    try {
      const records = []
      await consumer.subscribe({ topics: [topic] })
      await new Promise((resolve, reject) => {
        const late = setTimeout(() => reject(new Error(records.length + ' records of ' + count)), 20000)
        consumer.run({
          autoCommit: false,
          eachMessage: async ({ message }) => {
            const text = b => (b === null ? null : b.toString('base64'))
            const headers = Object.entries(message.headers || {}).map(([name, value]) => [name, text(value)])
            records.push({ offset: Number(message.offset), timestamp: Number(message.timestamp), key: text(message.key), value: text(message.value), headers })
            if (records.length === count) {
              clearTimeout(late)
              resolve()
            }
          },
        }).catch(reject)
        consumer.seek({ topic, partition, offset: String(offset) })
      })
      return { records: records.slice(0, count) }
    } finally {
      await consumer.disconnect()
    }
  },
  create: ({ topic, partitions }) => withAdmin(async admin => {
    if (!(await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }] }))) throw new Error('not created')
    return {}
  }),
  describe: ({ topic }) => withAdmin(async admin => ({
    partitions: (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length,
  })),
  delete: ({ topic }) => withAdmin(async admin => {
    await admin.deleteTopics({ topics: [topic] })
    return {}
  }),
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, ...args } = JSON.parse(line)
    let out
    try {
      out = await ops[op](args)
    } catch (err) {
      out = { error: err.stack }
    }
    process.stdout.write(JSON.stringify(out) + '\n')
  }
  process.exit(0)
}

main()
