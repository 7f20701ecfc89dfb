// The browser client as one of a test's devices, in Node: takes commands from standard input, each a line of
// JSON, and answers each with a line.
//
//	node --experimental-websocket browserdevice.mjs <socket URL> <token URL> <user> <device>
//
// The flag is for Node 20; newer ones have WebSocket anyway.

import { createInterface } from "node:readline";
import { MemoryStore, open } from "../../shared/client/web/index.js";

const [url, tokens, userId, deviceId] = process.argv.slice(2);
const store = new MemoryStore();
const client = await open({
  url,
  userId,
  deviceId,
  store,
  tabs: null,
  token: async () => (await (await fetch(`${tokens}?user=${encodeURIComponent(userId)}`)).json()).token,
  log: () => {},
});

const commands = {
  /** Waits until the device has all through a seq, and knows what is read, and tells what it shows. */
  async look({ id, through, read }) {
    for (;;) {
      const held = (await store.load()).conversations.find(({ conversationId }) => conversationId === id);
      if (held?.maxContiguousSeq >= through && held.readSeq >= read) return { unread: client.conversation(id).unread };
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  },
  async send({ id, text }) {
    await client.send(id, text);
    return {};
  },
  async markRead({ id }) {
    client.markRead(id);
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...fields } = JSON.parse(line);
  console.log(JSON.stringify(await commands[command](fields)));
}
await client.close();
process.exit(0);
