// Browser clients of several users in one Node, of whom all look at a conversation: takes commands from
// standard input, each a line of JSON, and answers each with a line.
//
//	node --experimental-websocket crowd.mjs <socket URL> <token URL> <user> …

import { createInterface } from "node:readline";
import { MemoryStore, open } from "../../shared/client/web/index.js";
import { TIMING } from "../../shared/client/web/engine.js";

const PATIENCE_MS = 30_000;
const [url, tokens, ...users] = process.argv.slice(2);
const devices = await Promise.all(
  users.map(async (userId) => {
    const store = new MemoryStore();
    const told = new Map(); // by conversation, through which seq the server was told that it was read
    const token = async () => (await (await fetch(`${tokens}?user=${encodeURIComponent(userId)}`)).json()).token;
    const client = await open({ url, userId, deviceId: "web", store, tabs: null, token, log: () => {}, WebSocket: socketThatNotes(told) });
    return { userId, store, client, told };
  }),
);

function socketThatNotes(told) {
  return class extends WebSocket {
    send(frame) {
      const { action, conversationId, readSeq } = JSON.parse(frame);
      if (action === "tell" || action === "ack") told.set(conversationId, Math.max(told.get(conversationId) ?? 0, readSeq ?? 0));
      super.send(frame);
    }
  };
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 10));

const commands = {
  async timing() {
    return TIMING;
  },
  /** Opens the conversation on every device, as the page does: what comes is read. */
  async look({ id }) {
    for (const { client } of devices) {
      client.show(id);
      client.addEventListener("change", () => client.markRead(id));
      client.markRead(id);
    }
    return {};
  },
  async send({ by, id, to, text }) {
    const { client } = devices[by];
    await client.send(id ?? client.keyFor(to), text);
    return {};
  },
  /**
   * Waits until all have it through seq and, if wanted, all but its sender have told so, and the sender knows. What
   * they told may have got lost, then the sender lacks it until they tell more.
   */
  async settled({ by, id, seq, told: wantsTold, receipts }) {
    for (let since = Infinity; ; ) {
      const held = await Promise.all(
        devices.map(async ({ store }) => (await store.load()).conversations.find(({ conversationId }) => conversationId === id)),
      );
      const others = users.filter((_, i) => i !== by);
      const has = held.every((line) => line?.maxContiguousSeq >= seq);
      const told = devices.every((device, i) => i === by || (device.told.get(id) ?? 0) >= seq);
      const known = others.every((userId) => held[by]?.receipts?.get(userId)?.readSeq >= seq);
      const done = has && (!wantsTold || told);
      if (done && (!receipts || known)) return {};
      since = done ? Math.min(since, Date.now()) : Infinity;
      if (Date.now() - since > PATIENCE_MS) return { lacks: true };
      await pause();
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...fields } = JSON.parse(line);
  console.log(JSON.stringify(await commands[command](fields)));
}
await Promise.all(devices.map(({ client }) => client.close()));
process.exit(0);
