// One member of a consumer group by kafkajs; it says what member.py says.
//
// usage: node member.js NODE_MODULES ADDRESS GROUP TOPIC PROTOCOL INSTANCE SESSION
const path = require('path')
const { Kafka, logLevel, PartitionAssigners } = require(path.join(process.argv[2], 'kafkajs'))
const [address, groupId, topic, , , session] = process.argv.slice(3)

const kafka = new Kafka({ clientId: 'kafkajs', brokers: [address], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 } })
const say = (...words) => process.stdout.write(words.join(' ').replace(/\n/g, ' ') + '\n')

async function main() {
  const consumer = kafka.consumer({ groupId, sessionTimeout: Number(session), heartbeatInterval: 300, rebalanceTimeout: 5000, maxWaitTimeInMs: 100, partitionAssigners: [PartitionAssigners.roundRobin] })
  consumer.on(consumer.events.GROUP_JOIN, e => say('hold', ...(e.payload.memberAssignment[topic] || [])))
  consumer.on(consumer.events.REBALANCING, () => say('hold'))
  consumer.on(consumer.events.CRASH, e => say(e.payload.restart ? 'uncommitted' : 'failed', e.payload.error.stack))
  say('ready')
  await new Promise(resolve => process.stdin.once('data', resolve))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  process.stdin.resume()
  process.stdin.on('end', async () => {
    await consumer.disconnect()
    say('left')
    process.exit(0)
  })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      const offsets = batch.messages.map(m => m.offset)
      if (offsets.length === 0) return
      say('read', batch.partition, ...offsets)
      try {
        await consumer.commitOffsets([{ topic, partition: batch.partition, offset: String(BigInt(batch.lastOffset()) + 1n) }])
      } catch (err) {
        say('uncommitted', err.stack)
      }
      await heartbeat() // joins again where the group does not know it any more
    },
  })
}

main().catch(err => say('failed', err.stack))
