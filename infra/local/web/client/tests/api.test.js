// What programs build on: what they may give, and what they are given.

import { test } from "node:test";
import assert from "node:assert/strict";
import { MemoryStore } from "../store.js";
import { setUp, texts } from "./world.js";

test("a device id of 64 bytes can do everything: what is sent is named without it", async (t) => {
  const { clock, server, online } = setUp(t);
  const deviceId = "d".repeat(64);
  const alice = await online("alice", { deviceId });
  const group = alice.createGroup("Trip", ["bob"]);
  const id = await alice.send("to:bob", "hello");
  await clock.until(() => alice.messages("to:bob").at(-1).seq === 1 && alice.conversation(group).role === "owner");
  const row = alice.messages("to:bob")[0];
  await alice.edit("to:bob", row, "hullo");
  await alice.recall("to:bob", row);
  await alice.setTitle(group, "Journey");
  await alice.addMembers(group, ["carol"]);
  await clock.advance(10_000);
  assert.deepEqual([row.state, row.clientMsgId, alice.messages("to:bob")[0].recalled, alice.conversation(group).title], ["sent", id, true, "Journey"]);
  const ids = server.requests.map(({ frame }) => frame.clientMsgId).filter((clientMsgId) => clientMsgId !== undefined);
  assert.equal(new Set(ids).size, 6);
  for (const clientMsgId of ids) assert.match(clientMsgId, /^[0-9a-f]{32}$/);
  assert.deepEqual(texts(alice, group).length, 3);
});

test("users may be named as what every object has: their receipts count", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
    const key = alice.keyFor(name);
    await alice.send(key, "hello");
    await clock.until(() => alice.messages(key)[0].seq === 1);
    assert.deepEqual([alice.messages(key)[0].receipt, alice.messages(key)[0].readBy], [null, []], `${name} has read nothing`);
    server.post(name, { to: "alice" }, "hi");
    const other = await online(name);
    other.markRead("to:alice");
    await clock.until(() => alice.messages(key)[0].receipt === "read");
    assert.deepEqual(alice.messages(key)[0].readBy, [name]);
  }
  alice.setOffline(true);
  const again = await online("alice", { store });
  assert.deepEqual(again.messages("to:__proto__")[0].readBy, ["__proto__"], "after a reload");
});

test("receipts that an earlier version has stored still count", async (t) => {
  const { online } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  const stored = { conversationId: "single:x", seq: 1, messageId: "m", senderId: "alice", messageType: "text", text: "hi", version: 1, status: "normal", serverTime: 1 };
  const facts = { peer: "bob", receipts: { bob: { deliveredSeq: 1, readSeq: 1 } }, baseSeq: 0, maxContiguousSeq: 1 };
  alice.setOffline(true);
  await store.commit({ messages: [stored], conversations: [{ conversationId: "single:x", ...facts }], syncCursor: 1 });
  const again = setUp(t).device("alice", { store });
  await again.start();
  assert.deepEqual(again.messages("single:x")[0].readBy, ["bob"]);
});

for (const [who, senderId] of [["the product", "system"], ["an operator", "moderator"]]) {
  test(`a conversation that ${who} opened is with the other one`, async (t) => {
    const { clock, server, online } = setUp(t);
    const { conversationId } = server.between(["alice", "bob"], senderId); // both are away
    const alice = await online("alice");
    await clock.until(() => alice.conversations().length === 1);
    const other = () => [alice.conversation(conversationId).title, alice.conversation(conversationId).peer, alice.currentKey("to:bob")];
    assert.deepEqual(other(), ["bob", "bob", conversationId]);
    server.act("bob", "send", { to: "alice", messageType: "text", text: "hi" });
    await alice.send(conversationId, "hello");
    server.between(["alice", "bob"], senderId); // pushed to who is there
    await clock.advance(10_000);
    const row = alice.messages(conversationId).find(({ mine }) => mine);
    assert.deepEqual([...other(), row.readBy, row.audience], ["bob", "bob", conversationId, [], 1]);
  });

  test(`a conversation that ${who} opens while we are there is with the other one`, async (t) => {
    const { clock, server, online } = setUp(t);
    const alice = await online("alice");
    const { conversationId } = server.between(["alice", "bob"], senderId);
    await clock.advance(10_000);
    assert.equal(alice.conversation(conversationId).peer, "bob");
  });
}

test("a device that took the product for the other one asks who it is", async (t) => {
  const { clock, server, online, device } = setUp(t);
  const store = new MemoryStore();
  const { conversationId } = server.between(["alice", "bob"]);
  const alice = await online("alice", { store });
  alice.setOffline(true);
  const { conversations, syncCursor } = await store.load();
  await store.commit({ conversations: conversations.map((known) => ({ ...known, peer: "system" })) });
  const again = device("alice", { store });
  await again.start();
  assert.notEqual(again.conversation(conversationId).title, "system");
  await clock.until(() => again.conversation(conversationId).title === "bob");
  await clock.advance(1_000);
  assert.equal((await store.load()).syncCursor, syncCursor);
});
