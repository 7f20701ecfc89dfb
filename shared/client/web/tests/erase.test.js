import { test } from "node:test";
import assert from "node:assert/strict";
import { Ledger } from "../ledger.js";
import { MemoryStore } from "../store.js";
import { seqs, setUp, setUpTabs, texts } from "./world.js";

const shown = (client, id) => client.messages(id).map(({ text, recalled }) => (recalled ? "recalled" : text));
const saved = async (store) => JSON.stringify(await store.load());

// mallory has written, edited and recalled in a conversation with bob, who has answered.
function secrets(server) {
  const { conversationId: id, seq, messageId } = server.post("mallory", { to: "bob" }, "secret 1");
  server.act("mallory", "edit", { conversationId: id, seq, messageId, version: 1, text: "secret 1, edited" });
  server.post("bob", { conversationId: id }, "I see", { replyTo: { seq, messageId } });
  server.post("mallory", { conversationId: id }, undefined, { messageType: "file", data: { name: "secret.pdf" } });
  const last = server.post("mallory", { conversationId: id }, "secret 2");
  server.act("mallory", "recall", { conversationId: id, seq: last.seq, messageId: last.messageId });
  return id;
}

test("G5: what was erased goes from devices that are online, were away, or are new", async (t) => {
  const { clock, server, online } = setUp(t);
  const stores = [new MemoryStore(), new MemoryStore(), new MemoryStore()];
  const live = await online("bob", { store: stores[0] });
  const away = await online("bob", { deviceId: "web-2", store: stores[1] });
  const id = secrets(server);
  await clock.until(() => texts(live, id).length === 4 && texts(away, id).length === 4);
  away.setOffline(true);
  for (const store of stores.slice(0, 2)) assert.match(await saved(store), /secret 1/);

  server.erase("mallory");
  server.post("bob", { conversationId: id }, "who was that?");
  const want = ["recalled", "I see", "recalled", "recalled", "who was that?"];
  await clock.until(() => texts(live, id).length === 5);
  away.setOffline(false);
  await clock.until(() => texts(away, id).length === 5);
  const fresh = await online("bob", { deviceId: "web-3", store: stores[2] });
  await clock.until(() => texts(fresh, id).length === 5);
  for (const [i, client] of [live, away, fresh].entries()) {
    assert.deepEqual(shown(client, id), want);
    assert.deepEqual(client.messages(id)[1].quote, { seq: 1, senderId: "mallory", kind: "text", text: "", recalled: true });
    assert.deepEqual([client.conversation(id).peer, client.conversation(id).last.text], ["mallory", "who was that?"]);
    assert.doesNotMatch(await saved(stores[i]), /secret/);
    const versions = (await stores[i].load()).messages.sort((a, b) => a.seq - b.seq).map(({ version, status }) => [version, status]);
    assert.deepEqual(versions, server.entries(id).map(({ version, status }) => [version, status]), "as the server has them");
  }
  const reloaded = await online("bob", { store: stores[0] });
  assert.deepEqual(shown(reloaded, id), want);
});

test("G5: the event comes first, last, twice, or by sync", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const bob = await online("bob", { store });
  for (const pushes of [() => 0, () => 2, (frame) => (frame.updates?.[0].messages[0].event ? 1 : 0)]) {
    server.pushes = (frame) => (frame.type === "push" ? pushes(frame) : 1);
    const id = secrets(server);
    server.erase("mallory");
    bob.setOffline(true);
    bob.setOffline(false);
    await clock.advance(5_000);
    assert.deepEqual(seqs(bob, id).at(-1), server.entries(id).findLast(({ event }) => !event).seq);
    assert.doesNotMatch(JSON.stringify(bob.messages(id)), /secret/);
    assert.doesNotMatch(await saved(store), /secret/);
  }
});

test("G5: what was erased goes from the tabs that do not lead, and from the store they share", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [leader, follower] = await tabs(2, { userId: "bob" });
  const id = secrets(server);
  await clock.until(() => texts(follower, id).length === 4);
  server.erase("mallory");
  await clock.until(() => shown(follower, id)[0] === "recalled");
  for (const client of [leader, follower]) assert.doesNotMatch(JSON.stringify(client.messages(id)), /secret/);
  await leader.close();
  await clock.advance(10_000);
  server.post("mallory", { conversationId: id }, "secret 3"); // it leads now, and knows of the event
  await clock.until(() => texts(follower, id).length === 5);
  server.erase("mallory");
  await clock.until(() => shown(follower, id)[4] === "recalled");
});

test("G5: history does not bring back what was erased", () => {
  const message = (seq, senderId, more) => ({ conversationId: "group:g", seq, messageId: `m${seq}`, senderId, messageType: "text", text: `t${seq}`, version: 1, status: "normal", serverTime: seq, ...more });
  const event = message(4, "system", { messageType: "event", text: null, event: { kind: "erase", erased: "mallory" } });
  const ledger = new Ledger("group:g");
  ledger.startAfter(2);
  ledger.push([message(3, "mallory"), event, message(5, "mallory")], 5);
  const early = message(2, "mallory", { senderDeviceId: "phone", clientTime: 9 });
  ledger.earlier({ messages: [message(1, "bob"), early], nextBeforeSeq: 1, hasMore: false }, 3);
  assert.deepEqual(
    ledger.messages.map(({ text, status, version }) => [text, status, version]),
    [
      ["t1", "normal", 1],
      [null, "recalled", 2],
      [null, "recalled", 2],
      [null, "normal", 1],
      ["t5", "normal", 1],
    ],
  );
  assert.deepEqual([ledger.messages[1].senderDeviceId, ledger.messages[1].clientTime], [undefined, undefined]);
  const reloaded = new Ledger("group:g", { baseSeq: 2, maxContiguousSeq: 5, messages: ledger.messages.slice(2) });
  reloaded.earlier({ messages: [early], nextBeforeSeq: 2, hasMore: true }, 3);
  assert.equal(reloaded.messages[0].status, "recalled");
});
