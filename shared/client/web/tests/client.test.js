import { test } from "node:test";
import assert from "node:assert/strict";
import { MAX_TEXT_RUNES, countRunes } from "../checks.js";
import { InorderClient } from "../client.js";
import { TIMING } from "../engine.js";
import { MemoryStore } from "../store.js";
import { seededRandom, settled } from "./clock.js";
import { seqs, setUp, setUpOnline, texts } from "./world.js";

const withBob = (client) => client.keyFor("bob");

test("it connects as the protocol asks, with a fresh token each time", async (t) => {
  const { clock, server, socketOf } = setUp(t);
  let issued = 0;
  server.names = () => "alice";
  const client = new InorderClient({ url: "ws://h/local", userId: "alice", deviceId: "web-1", store: new MemoryStore(), tabs: null, token: async () => `alice${++issued}`, WebSocket: server.WebSocket, clock, log: () => {} });
  await client.start();
  await clock.until(() => client.state === "online");
  assert.equal(server.sockets[0].url, "ws://h/local?device=web-1");
  assert.deepEqual(server.sockets[0].protocols, ["inorder.v1", "bearer.alice1"]);
  server.cutAll();
  await clock.until(() => client.state === "connecting");
  await clock.until(() => client.state === "online");
  assert.deepEqual(server.sockets[0].protocols, ["inorder.v1", "bearer.alice2"]);
  client.setOffline(true);
  assert.equal(socketOf(client), undefined);
});

test("a first message: pending at once, then numbered, shown once on both sides", async (t) => {
  const { clock, server, alice, bob } = await setUpOnline(t, "alice", "bob");
  const key = withBob(alice);
  const sent = alice.send(key, "hello");
  assert.deepEqual(alice.messages(key).map(({ text, state, seq }) => ({ text, state, seq })), [{ text: "hello", state: "sending", seq: null }]);
  const clientMsgId = await sent;
  await clock.until(() => bob.messages(bob.keyFor("alice")).length === 1);
  await clock.advance(5_000);
  const [row, ...others] = alice.messages(key);
  assert.equal(others.length, 0);
  const { messageId } = server.entries(alice.currentKey(key))[0];
  assert.deepEqual({ ...row, time: 0 }, {
    seq: 1,
    messageId,
    clientMsgId,
    senderId: "alice",
    mine: true,
    kind: "text",
    text: "hello",
    data: null,
    event: null,
    quote: null,
    recalled: false,
    edited: false,
    canEdit: true,
    canRecall: true,
    revision: null,
    time: 0,
    state: "sent",
    error: null,
    receipt: null, // bob has not answered
    readBy: [],
    lost: false,
    audience: 1,
  });
  assert.match(alice.currentKey(key), /^single:/);
  assert.deepEqual(alice.conversations().map(({ title, unread }) => ({ title, unread })), [{ title: "bob", unread: 0 }]);
  assert.deepEqual(bob.conversations().map(({ title, unread }) => ({ title, unread })), [{ title: "alice", unread: 1 }]);
  bob.markRead(bob.keyFor("alice"));
  assert.equal(bob.conversations()[0].unread, 0);
});

test("notes to self are a conversation too", async (t) => {
  const { clock, alice } = await setUpOnline(t, "alice");
  await alice.send(alice.keyFor("alice"), "milk");
  await clock.until(() => alice.messages(alice.keyFor("alice"))[0].state === "sent");
  assert.deepEqual(alice.conversations().map(({ title, unread }) => [title, unread]), [["alice (notes to self)", 0]]);
});

test("text is counted in code points", async (t) => {
  const { server, clock, alice } = await setUpOnline(t, "alice");
  assert.equal(countRunes("a😀é"), 3);
  await assert.rejects(alice.send("to:bob", "😀".repeat(MAX_TEXT_RUNES + 1)), RangeError);
  await assert.rejects(alice.send("to:bob", " \n"), RangeError);
  assert.equal(alice.messages("to:bob").length, 0);
  await alice.send("to:bob", "😀".repeat(MAX_TEXT_RUNES));
  await clock.until(() => server.count("send") === 1);
});

test("a lost push is noticed by the next one and pulled after a moment", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  server.post("alice", { to: "bob" }, "one");
  await clock.advance(50);
  server.pushes = () => 0;
  server.post("alice", { to: "bob" }, "two");
  await clock.advance(50);
  server.pushes = () => 1;
  server.post("alice", { to: "bob" }, "three");
  await clock.advance(TIMING.gapWaitMs - 50);
  assert.deepEqual(texts(bob, bob.keyFor("alice")), ["one"]);
  assert.equal(server.count("sync"), 0, "the missing one may just be late");
  await clock.until(() => texts(bob, bob.keyFor("alice")).length === 3);
  assert.deepEqual(texts(bob, bob.keyFor("alice")), ["one", "two", "three"]);
  assert.deepEqual(server.requests.filter(({ frame }) => frame.action === "sync").map(({ frame }) => frame.afterSeq), [1]);
});

test("a lost push into a quiet conversation is found with the next heartbeat", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  server.pushes = () => 0;
  server.post("alice", { to: "bob" }, "anyone?");
  await clock.advance(TIMING.heartbeatMs);
  await clock.until(() => texts(bob, bob.keyFor("alice")).length === 1);
});

test("an idle device asks what changed, and nothing else, before the platform ends its connection", async (t) => {
  const { clock, server, socketOf, bob } = await setUpOnline(t, "bob");
  const socket = socketOf(bob);
  const asked = server.requests.length;
  const times = [];
  server.refuse = () => void times.push(clock.now());
  const start = clock.now();
  await clock.advance(60 * 60_000);
  assert.equal(socketOf(bob), socket);
  assert.deepEqual(new Set(server.requests.slice(asked).map(({ frame }) => frame.action)), new Set(["changes"]));
  assert.equal(times.length, 6);
  const pauses = times.map((time, i) => time - (times[i - 1] ?? start));
  assert.ok(pauses.every((pause) => pause <= 9 * 60_000), "a timer of a hidden tab may be a minute late");
});

test("who hears what changed needs no heartbeat for a while", async (t) => {
  const { clock, server, socketOf, bob } = await setUpOnline(t, "bob");
  await clock.advance(TIMING.heartbeatMs - 1_000);
  server.say(socketOf(bob), { type: "changed", syncCursor: 1 });
  await clock.advance(1_000);
  const asked = server.count("changes");
  await clock.advance(TIMING.heartbeatMs - 1_000);
  assert.equal(server.count("changes"), asked);
  await clock.advance(1_000);
  assert.equal(server.count("changes"), asked + 1);
});

test("a heartbeat that nobody answers tells that the connection is dead", async (t) => {
  const { clock, server, socketOf, bob } = await setUpOnline(t, "bob");
  const socket = socketOf(bob);
  server.answer = (frame, asker) => (asker === socket ? "lose" : undefined);
  await clock.advance(TIMING.heartbeatMs);
  await clock.until(() => bob.state === "online" && socketOf(bob) !== socket, 2 * TIMING.requestTimeoutMs + 1_000);
});

test("reordered and repeated pushes need no sync", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  const delays = [5, 150, 90, 5, 40];
  let i = 0;
  server.pushes = () => 2;
  server.latency = () => delays[i++ % delays.length];
  for (const text of ["1", "2", "3", "4", "5"]) server.post("alice", { to: "bob" }, text);
  await clock.advance(2_000);
  assert.deepEqual(texts(bob, bob.keyFor("alice")), ["1", "2", "3", "4", "5"]);
  assert.equal(server.count("sync"), 0);
});

test("notify is only a hint: the entries are pulled", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  server.notifyAbove = 1;
  const key = server.group("big", ["alice", "bob"]);
  server.post("alice", { conversationId: key }, "to all");
  await clock.until(() => texts(bob, key).length === 1);
  assert.equal(server.count("sync"), 1);
});

test("a pull goes on until nextSeq reaches the head, however short the pages", async (t) => {
  const { clock, server, online } = setUp(t);
  for (let i = 1; i <= 25; i++) server.post("alice", { to: "bob" }, `${i}`);
  server.pageSize = 3;
  const bob = await online("bob");
  await clock.until(() => texts(bob, bob.keyFor("alice")).length === 25);
  assert.equal(server.count("sync"), 9);
});

test("a gap that opens during a pull is pulled too", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  const post = (text) => server.post("alice", { to: "bob" }, text);
  post("1");
  await clock.advance(50);
  server.pushes = ({ updates }) => (updates[0].committedMaxSeq % 2 === 1 ? 1 : 0);
  post("2");
  post("3");
  await clock.until(() => server.count("sync") === 1);
  server.latency = () => 1; // these overtake the answer
  post("4");
  post("5");
  await clock.until(() => texts(bob, bob.keyFor("alice")).length === 5, 1_000);
  assert.equal(server.count("sync"), 2);
});

test("a pull that fails is tried again", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  server.post("alice", { to: "bob" }, "1");
  await clock.advance(50);
  server.pushes = ({ updates }) => (updates[0].committedMaxSeq === 2 ? 0 : 1);
  let busy = 3;
  server.refuse = (frame) => (frame.action === "sync" && busy-- > 0 ? { code: "BUSY", message: "throttled", retryable: true } : undefined);
  server.post("alice", { to: "bob" }, "2");
  server.post("alice", { to: "bob" }, "3");
  await clock.until(() => texts(bob, bob.keyFor("alice")).length === 3, 10_000);
  assert.equal(server.count("sync"), 4);
});

test("seqs that retention removed are passed", async (t) => {
  const { clock, server, online } = setUp(t);
  const { conversationId } = server.post("alice", { to: "bob" }, "1");
  for (let i = 2; i <= 9; i++) server.post("alice", { to: "bob" }, `${i}`);
  for (const seq of [1, 2, 3, 6, 9]) server.conversations.get(conversationId).holes.add(seq);
  server.pageSize = 3;
  const bob = await online("bob");
  await clock.until(() => texts(bob, conversationId).length === 4);
  assert.deepEqual(seqs(bob, conversationId), [4, 5, 7, 8]);
  await clock.advance(1_000);
  const asked = server.count("sync");
  server.post("alice", { to: "bob" }, "10");
  await clock.advance(1_000);
  assert.deepEqual(seqs(bob, conversationId), [4, 5, 7, 8, 10]);
  assert.equal(server.count("sync"), asked, "the hole at 9 is not waited for");
});

test("a page that cannot move yet is asked for again, with patience", async (t) => {
  const { clock, server, online } = setUp(t);
  server.post("alice", { to: "bob" }, "one");
  let stuck = true;
  server.answer = (frame) => (frame.action === "sync" && stuck ? { type: "reply", id: frame.id, result: { messages: [], nextSeq: 0, committedMaxSeq: 1, hasMore: true } } : undefined);
  const bob = await online("bob");
  await clock.advance(10_000);
  assert.equal(bob.messages(bob.keyFor("alice")).length, 0);
  assert.ok(server.count("sync") < 12, `${server.count("sync")} requests in ten seconds`);
  stuck = false;
  await clock.until(() => bob.messages(bob.keyFor("alice")).length === 1);
});

test("a head that is not for us is not waited for", async (t) => {
  const { clock, server, online, socketOf } = setUp(t);
  const { conversationId } = server.post("alice", { to: "bob" }, "one");
  const bob = await online("bob");
  server.say(socketOf(bob), { type: "notify", updates: [{ conversationId, committedMaxSeq: 50 }] });
  await clock.advance(60_000);
  assert.equal(server.count("sync"), 2, "one to catch up, one for the notice");
});

test("offline: nothing is asked; back online: changes, then sync", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  server.post("alice", { to: "bob" }, "one");
  server.post("carol", { to: "bob" }, "uno");
  await clock.advance(100);
  bob.setOffline(true);
  assert.equal(bob.state, "offline");
  server.post("alice", { to: "bob" }, "two");
  await clock.advance(600_000);
  assert.equal(server.sockets.length, 0);
  const before = server.requests.length;
  bob.setOffline(false);
  await clock.until(() => texts(bob, bob.keyFor("alice")).length === 2);
  const asked = server.requests.slice(before).map(({ frame }) => frame);
  assert.deepEqual(asked.map(({ action, afterSeq }) => [action, afterSeq]), [["changes", undefined], ["sync", 0]], "carol's has not changed; the last entry held tells whether it is the same server");
  await clock.advance(100);
  bob.setOffline(true);
  bob.setOffline(false);
  await clock.advance(100);
  assert.deepEqual(server.requests.slice(before).map(({ frame: { action, syncCursor } }) => [action, syncCursor]).at(-1), ["changes", 3], "the cursor moved on");
});

test("more changes than one answer takes come in several", async (t) => {
  const { clock, server, online } = setUp(t);
  server.listSize = 3;
  server.inboxGroupMax = 2;
  const large = server.group("large", ["alice", "bob", "carol"]);
  const small = [1, 2, 3, 4].map((n) => server.group(`g${n}`, ["alice", "bob"]));
  server.post("alice", { to: "bob" }, "one"); // there is a cursor
  const bob = await online("bob");
  await clock.advance(100);
  bob.setOffline(true);
  for (const conversationId of [large, ...small]) server.post("alice", { conversationId }, "hi");
  const before = server.requests.length;
  bob.setOffline(false);
  await clock.until(() => [large, ...small].every((key) => texts(bob, key).includes("hi")));
  await clock.advance(100);
  const asked = server.requests.slice(before).filter(({ frame }) => frame.action === "changes").map(({ frame }) => frame);
  assert.equal(asked.length, 2);
  assert.ok(asked[1].headsCursor, "it knows the heads of the first answer");
  assert.ok(server.requests.slice(before).every(({ frame }) => frame.action !== "conversations"));
});

test("heads of large groups are compared", async (t) => {
  const { clock, server, online } = setUp(t);
  const key = server.group("big", ["alice", "bob"]);
  server.post("alice", { conversationId: key }, "one");
  server.answer = (frame) => (frame.action === "changes" ? { type: "reply", id: frame.id, result: { conversations: [], heads: [{ conversationId: key, committedMaxSeq: 1 }], syncCursor: 1, full: false, userId: "bob" } } : undefined);
  const bob = await online("bob");
  await clock.until(() => texts(bob, key).length === 1);
});

test("a push of an unknown conversation makes the device ask who it is with", async (t) => {
  const { clock, online } = setUp(t);
  const alice = await online("alice", { deviceId: "web-1" });
  const other = await online("alice", { deviceId: "web-2" });
  await alice.send("to:bob", "hi");
  await clock.until(() => other.conversations()[0]?.title === "bob");
});

test("a device does not say that a conversation is gone before it has asked the server once", async (t) => {
  const { clock, server, device } = setUp(t);
  const there = server.group("there", ["alice", "bob"]);
  server.post("bob", { conversationId: there }, "hello");
  const alice = device("alice");
  await alice.start();
  const closed = () => [there, "group:gone", "new:gone"].map((key) => alice.conversation(key).closed);
  assert.deepEqual(closed(), [null, null, "unknown"], "what this device would have to make itself is known without the server");
  const said = new Set();
  alice.subscribe(() => said.add(closed()[0]));
  await clock.until(() => closed()[1] === "unknown");
  await clock.until(() => alice.messages(there).length === 1);
  assert.deepEqual([closed(), [...said]], [[null, "unknown", "unknown"], [null]]);
  alice.setOffline(true);
  assert.deepEqual(closed(), [null, "unknown", "unknown"], "what was told stays known");
});

test("a refused sync does not keep the cursor from moving", async (t) => {
  const { clock, server, online } = setUp(t);
  server.post("alice", { to: "bob" }, "one");
  server.refuse = (frame) => (frame.action === "sync" ? { code: "NOT_FOUND", message: "no such conversation", retryable: false } : undefined);
  const store = new MemoryStore();
  await online("bob", { store });
  await clock.advance(60_000);
  assert.equal((await store.load()).syncCursor, 1);
  assert.equal(server.count("sync"), 1);
});

test("one conversation that fails does not hold up the others or the outbox", async (t) => {
  const { clock, server, online } = setUp(t);
  for (const peer of ["p1", "p2", "p3", "p4", "p5", "p6"]) server.post(peer, { to: "bob" }, "hi");
  server.refuse = (frame) => (frame.action === "sync" && frame.conversationId.includes("p1") ? { code: "INTERNAL", message: "broken", retryable: true } : undefined);
  const store = new MemoryStore();
  const bob = await online("bob", { store });
  await clock.until(() => bob.conversations().filter(({ last }) => last).length === 5, 5_000);
  await bob.send("to:p2", "hello");
  await clock.until(() => server.count("send") === 1, 10_000);
  assert.equal((await store.load()).syncCursor, null, "the cursor stands for the broken one too");
  server.refuse = () => undefined;
  await clock.until(() => bob.messages(bob.keyFor("p1")).length === 1);
  await clock.advance(1_000);
  assert.equal((await store.load()).syncCursor, 7, "six of theirs, one of ours");
});

test("G3: an answer lost after the commit leads to a resend, not to a second message", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  let lost = 0;
  server.pushes = () => 0;
  server.answer = (frame) => (frame.action === "send" && lost++ < 2 ? "lose" : undefined);
  await alice.send("to:bob", "once");
  await clock.until(() => alice.messages("to:bob")[0].state === "sent");
  const ids = new Set(server.requests.filter(({ frame }) => frame.action === "send").map(({ frame }) => frame.clientMsgId));
  assert.equal(server.count("send"), 3);
  assert.equal(ids.size, 1);
  await clock.advance(10_000);
  assert.deepEqual(seqs(alice, "to:bob"), [1]);
  assert.equal(server.entries(alice.currentKey("to:bob")).length, 1);
});

test("an own message that is pulled stands for the lost answer", async (t) => {
  const { clock, server, alice, bob } = await setUpOnline(t, "alice", "bob");
  server.answer = (frame, { userId }) => (frame.action === "send" && userId === "alice" ? "lose" : undefined);
  await alice.send("to:bob", "first");
  await clock.until(() => texts(bob, "to:alice").length === 1, 1_000);
  await bob.send("to:alice", "second");
  await clock.until(() => alice.messages("to:bob").every((row) => row.state !== "sending"), 1_000);
  assert.deepEqual(texts(alice, "to:bob"), ["first", "second"]);
  await clock.advance(60_000);
  assert.equal(server.count("send"), 2);
});

test("the answer to a send is all that its device needs, and the others are pushed to", async (t) => {
  const { clock, server, online } = setUp(t);
  const phone = await online("alice", { deviceId: "phone" });
  const laptop = await online("alice", { deviceId: "laptop" });
  const before = server.requests.length;
  await phone.send("to:bob", "hi");
  await clock.until(() => texts(laptop, "to:bob").length === 1, 1_000);
  await clock.advance(10_000);
  const asked = server.requests.slice(before).filter(({ deviceId }) => deviceId === "phone").map(({ frame }) => frame.action);
  assert.deepEqual(asked, ["send"]);
  const [mine] = phone.messages("to:bob");
  const [other] = laptop.messages("to:bob");
  assert.deepEqual(mine, other);
});

test("a connection cut after the commit: same result, shown once", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  let cuts = 0;
  server.answer = (frame) => (frame.action === "send" && cuts++ === 0 ? "cut" : undefined);
  await alice.send("to:bob", "x");
  await clock.until(() => alice.messages("to:bob")[0].state === "sent");
  await clock.advance(10_000);
  assert.deepEqual(seqs(alice, "to:bob"), [1]);
  assert.equal(alice.state, "online");
});

test("BUSY and API Gateway's error frames are tried again with growing patience", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  let busy = 3;
  server.refuse = (frame) => (frame.action === "send" && busy-- > 0 ? { code: "BUSY", message: "contention", retryable: true } : undefined);
  const before = clock.now();
  await alice.send("to:bob", "a");
  await clock.until(() => alice.messages("to:bob")[0].state === "sent");
  assert.equal(server.count("send"), 4);
  assert.ok(clock.now() - before >= (300 + 600 + 1200) / 2, "half of each bound, as this random source has it");
  let broken = 1;
  server.answer = (frame) => (frame.action === "send" && broken-- > 0 ? { message: "Internal server error", connectionId: "x=", requestId: "y=" } : undefined);
  server.pushes = () => 0;
  await alice.send("to:bob", "b");
  await clock.until(() => alice.messages("to:bob")[1].state === "sent", 5_000);
  assert.equal(server.count("send"), 6);
});

test("who is too fast comes again when the server says, and not much later", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  let fast = 2;
  server.refuse = (frame) => (frame.action === "send" && fast-- > 0 ? { code: "BUSY", message: "too fast", retryable: true, details: { retryAfterMs: 5_000 } } : undefined);
  const before = clock.now();
  await alice.send("to:bob", "a");
  await clock.until(() => alice.messages("to:bob")[0].state === "sent", 20_000);
  assert.equal(server.count("send"), 3);
  const took = clock.now() - before;
  assert.ok(took >= 10_000 && took < 12_000, `${took} ms`);
});

test("who reads too fast comes again when the server says, and asks for nothing else meanwhile", async (t) => {
  const { clock, server, online } = setUp(t);
  const groups = 100, each = 10, retryAfterMs = 5_000, atOnce = 4;
  for (let i = 0; i < groups; i++) {
    server.group(`${i}`, ["alice", "bob"]);
    server.post("bob", { conversationId: `group:${i}` }, "hi");
  }
  let since = -Infinity, admitted = 0, refused = 0, windows = 0;
  server.refuse = ({ action }) => {
    if (!["changes", "conversations", "sync"].includes(action)) return undefined;
    if (clock.now() - since >= retryAfterMs) [since, admitted, windows] = [clock.now(), 0, windows + 1];
    if (admitted++ < each) return undefined;
    refused++;
    return { code: "BUSY", message: "too fast", retryable: true, details: { retryAfterMs } };
  };
  const alice = await online("alice");
  await clock.until(() => Array.from({ length: groups }, (_, i) => texts(alice, `group:${i}`)).every((all) => all.includes("hi")), 300_000);
  assert.ok(windows >= groups / each, `${windows} windows`);
  assert.ok(refused <= atOnce * windows, `${refused} refused in ${windows} windows`);
  assert.equal(server.count("changes"), 1, "and begins nothing anew");
});

test("a new connection does not wait for the patience of the old one", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  let busy = true;
  server.refuse = (frame) => (frame.action === "send" && busy ? { code: "BUSY", message: "contention", retryable: true } : undefined);
  await alice.send("to:bob", "a");
  await clock.until(() => server.count("send") === 7); // from here on the next try is five seconds away
  await clock.advance(100);
  busy = false;
  server.cutAll();
  await clock.until(() => alice.messages("to:bob")[0].state === "sent", 1_000);
});

test("offline, with messages to send, nothing is tried", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  server.post("carol", { to: "alice" }, "hi");
  server.pushes = () => 0;
  server.answer = (frame) => (frame.action === "send" ? "lose" : undefined);
  await alice.send("to:bob", "on its way");
  await clock.advance(50);
  alice.setOffline(true);
  await alice.send("to:bob", "written offline");
  await clock.advance(20_000);
  assert.equal(clock.pending, 0);
});

test("what cannot succeed is shown as failed with the reason, survives a reload and can be discarded", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  server.refuse = (frame) => (frame.action === "send" && frame.text === "bad" ? { code: "TOO_LARGE", message: "the entry is over 24 KB", retryable: false } : undefined);
  const id = await alice.send("to:bob", "bad");
  await alice.send("to:bob", "good");
  await clock.until(() => alice.messages("to:bob").some((row) => row.state === "sent"));
  await clock.advance(5_000);
  assert.deepEqual(alice.messages("to:bob").map(({ text, state, error }) => [text, state, error]), [
    ["good", "sent", null],
    ["bad", "failed", { code: "TOO_LARGE", message: "the entry is over 24 KB", retryable: false }],
  ]);
  alice.setOffline(true);
  const again = await online("alice", { store });
  assert.deepEqual(again.messages("to:bob").at(-1).error, { code: "TOO_LARGE", message: "the entry is over 24 KB", retryable: false });
  const before = server.count("send");
  await clock.advance(60_000);
  assert.equal(server.count("send"), before);
  again.discard(id);
  await settled();
  assert.deepEqual(texts(again, "to:bob"), ["good"]);
  assert.equal((await store.load()).outbox.length, 0);
});

test("one send at a time per conversation, several conversations at once", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  const inFlight = new Map();
  let most = 0;
  let together = 0;
  const answered = server.answer;
  server.refuse = (frame) => {
    if (frame.action !== "send") return undefined;
    const to = frame.to ?? frame.conversationId;
    inFlight.set(to, (inFlight.get(to) ?? 0) + 1);
    most = Math.max(most, inFlight.get(to));
    together = Math.max(together, [...inFlight.values()].filter((n) => n > 0).length);
    return undefined;
  };
  server.answer = (frame, socket) => {
    // The answer is on its way; only when it has arrived may the next one come.
    if (frame.action === "send") clock.setTimeout(() => inFlight.set(frame.to ?? frame.conversationId, 0), 5);
    return answered(frame, socket);
  };
  const random = seededRandom(7);
  server.latency = () => random() * 30;
  server.pushes = () => 0;
  for (let i = 0; i < 10; i++) for (const to of ["bob", "carol"]) alice.send(`to:${to}`, `${to} ${i}`);
  await clock.until(() => server.count("send") === 20);
  await clock.advance(10_000);
  for (const to of ["bob", "carol"]) {
    assert.deepEqual(server.entries(alice.keyFor(to)).map((entry) => entry.text), Array.from({ length: 10 }, (_, i) => `${to} ${i}`));
  }
  assert.equal(most, 1);
  assert.equal(together, 2);
});

test("order holds when the conversation gets its name while the first message still waits", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  let busy = true;
  server.refuse = (frame) => (busy && frame.text === "1" ? { code: "BUSY", message: "contention", retryable: true } : undefined);
  await alice.send("to:bob", "1");
  await clock.until(() => server.count("send") === 1);
  server.post("bob", { to: "alice" }, "hey");
  await clock.until(() => texts(alice, "to:bob").includes("hey"));
  assert.deepEqual(texts(alice, "to:bob"), ["hey", "1"]);
  await alice.send(alice.keyFor("bob"), "2");
  await clock.advance(1_000);
  assert.ok(server.requests.every(({ frame }) => frame.text !== "2"), "2 waits for 1");
  busy = false;
  await clock.until(() => seqs(alice, "to:bob").at(-1) === 3);
  assert.deepEqual(server.entries(alice.keyFor("bob")).map((entry) => entry.text), ["hey", "1", "2"]);
});

test("a reload keeps messages and sends what was not answered, under the same clientMsgId", async (t) => {
  const { clock, server, online, device } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  await alice.send("to:bob", "answered");
  await clock.until(() => alice.messages("to:bob")[0].state === "sent");
  await clock.advance(1_000);
  server.answer = (frame) => (frame.action === "send" ? "cut" : undefined); // committed, never answered
  server.pushes = () => 0;
  const id = await alice.send("to:bob", "unanswered");
  await clock.until(() => server.count("send") === 2);
  alice.setOffline(true);
  await alice.send("to:bob", "written offline");
  server.answer = () => undefined;

  const reloaded = device("alice", { store });
  await reloaded.start();
  assert.deepEqual(reloaded.messages("to:bob").map(({ text, state }) => [text, state]), [
    ["answered", "sent"],
    ["unanswered", "sending"],
    ["written offline", "sending"],
  ]);
  await clock.until(() => reloaded.messages("to:bob").every((row) => row.state === "sent"));
  await clock.advance(5_000);
  assert.deepEqual(seqs(reloaded, "to:bob"), [1, 2, 3]);
  assert.deepEqual(server.entries(reloaded.keyFor("bob")).map((entry) => entry.text), ["answered", "unanswered", "written offline"]);
  assert.equal(server.entries(reloaded.keyFor("bob"))[1].clientMsgId, id);
  assert.equal((await store.load()).outbox.length, 0);
});

test("a send waits for the catch-up after a connect, but not for ever", async (t) => {
  const { clock, server, device } = setUp(t);
  const alice = device("alice");
  server.answer = (frame) => (frame.action === "changes" ? "lose" : undefined);
  await alice.start();
  await clock.until(() => server.count("changes") === 1);
  await alice.send("to:bob", "x");
  await clock.advance(TIMING.flushWaitMs - 100);
  assert.equal(server.count("send"), 0);
  await clock.until(() => server.count("send") === 1, 200);
});

test("the cursor is stored last, and not at all when the entries could not be", async (t) => {
  const { clock, server, online } = setUp(t);
  server.post("alice", { to: "bob" }, "one");
  const commits = [];
  const store = new MemoryStore();
  const recording = { shared: false, claim: (atLeast) => store.claim(atLeast), load: () => store.load(), close: () => {}, commit: (change) => (commits.push(change), store.commit(change)) };
  await online("bob", { store: recording });
  const firstCursor = commits.findIndex((change) => change.syncCursor !== undefined);
  const firstMessages = commits.findIndex((change) => change.messages?.length > 0);
  assert.ok(firstMessages >= 0 && firstMessages < firstCursor, `messages in commit ${firstMessages}, cursor in ${firstCursor}`);
  assert.equal(commits[firstMessages].conversations[0].maxContiguousSeq, 1, "together with how far the conversation is complete");

  const full = new MemoryStore();
  const failing = {
    shared: false,
    claim: (atLeast) => full.claim(atLeast),
    load: () => full.load(),
    close: () => {},
    commit: async (change) => {
      if (change.messages?.length > 0) throw new Error("quota exceeded");
      return full.commit(change);
    },
  };
  const carol = await online("bob", { deviceId: "web-2", store: failing });
  await clock.advance(1_000);
  assert.equal(carol.storeError.message, "quota exceeded");
  assert.deepEqual(texts(carol, carol.keyFor("alice")), ["one"], "it still works in memory");
  assert.equal((await full.load()).syncCursor, null);
  assert.equal((await full.load()).conversations.every(({ maxContiguousSeq }) => maxContiguousSeq === 0), true);
});

test("a replaced device stays away and says why", async (t) => {
  const { clock, server, online } = setUp(t);
  const first = await online("alice", { deviceId: "web-1" });
  const second = await online("alice", { deviceId: "web-1", store: new MemoryStore() });
  await clock.advance(60_000);
  assert.equal(first.state, "offline");
  assert.equal(first.detail, "replaced");
  assert.equal(second.state, "online");
  assert.equal(server.sockets.length, 1);
});

test("receipts only ever rise, and ours tell what was read elsewhere", async (t) => {
  const { clock, server, socketOf, alice } = await setUpOnline(t, "alice");
  await alice.send("to:bob", "1");
  await alice.send("to:bob", "2");
  await clock.until(() => seqs(alice, "to:bob").at(-1) === 2);
  server.post("bob", { to: "alice" }, "3");
  await clock.advance(100);
  const conversationId = alice.keyFor("bob");
  const receipts = () => alice.messages("to:bob").map((row) => row.receipt);
  const say = async (receipt) => {
    server.say(socketOf(alice), { type: "receipt", conversationId, ...receipt });
    await clock.advance(50);
  };
  await say({ userId: "bob", deliveredSeq: 2 });
  assert.deepEqual(receipts(), ["delivered", "delivered", null]);
  await say({ userId: "bob", readSeq: 1 });
  await say({ userId: "bob", deliveredSeq: 1 });
  assert.deepEqual(receipts(), ["read", "delivered", null]);
  assert.equal(alice.conversations()[0].unread, 1);
  await say({ userId: "alice", readSeq: 3 });
  assert.equal(alice.conversations()[0].unread, 0);
  await say({ userId: "alice", readSeq: 1 });
  assert.equal(alice.conversations()[0].unread, 0);
});

test("a recall takes the text away, on screen and in the store", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const bob = await online("bob", { store });
  const target = server.post("alice", { to: "bob" }, "oops");
  await clock.advance(50);
  server.post("alice", { to: "bob" }, null, { messageType: "event", event: { kind: "recall", targetSeq: target.seq, targetMessageId: target.messageId } });
  await clock.advance(50);
  assert.deepEqual(bob.messages(bob.keyFor("alice")).map(({ text, recalled }) => [text, recalled]), [["", true]]);
  assert.equal((await store.load()).messages.find(({ seq }) => seq === 1).text, null);
});

test("only the last rows are given when asked so", async (t) => {
  const { clock, server, bob } = await setUpOnline(t, "bob");
  for (let i = 1; i <= 5; i++) server.post("alice", { to: "bob" }, `${i}`);
  await clock.advance(100);
  bob.setOffline(true);
  await bob.send(bob.keyFor("alice"), "mine");
  assert.deepEqual(bob.messages(bob.keyFor("alice"), 3).map((row) => row.text), ["4", "5", "mine"]);
});

test("a sync answer that leaves something out is asked for again", async (t) => {
  const { clock, server, device } = setUp(t);
  for (const text of ["one", "two", "three"]) server.post("bob", { to: "alice" }, text);
  let lies = 2;
  server.answer = (frame) => {
    if (frame.action !== "sync" || lies-- <= 0) return undefined;
    const { conversationId, messages } = { conversationId: frame.conversationId, messages: server.entries(frame.conversationId).filter(({ seq }) => seq !== 2) };
    return { id: frame.id, type: "reply", action: "sync", result: { conversationId, messages, nextSeq: 3, committedMaxSeq: 3, hasMore: false } };
  };
  const alice = device("alice");
  await alice.start();
  await clock.until(() => alice.messages(withBob(alice)).length > 0);
  assert.deepEqual(texts(alice, withBob(alice)), ["one", "two", "three"]);
});

test("an outbox that is full takes no more until something was answered", async (t) => {
  const { clock, server, online } = setUp(t);
  const alice = await online("alice", { limits: { outbox: 2 } });
  alice.setOffline(true);
  await alice.send(withBob(alice), "one");
  await alice.send(withBob(alice), "two");
  await assert.rejects(alice.send(withBob(alice), "three"), { code: "OUTBOX_FULL", retryable: true });
  assert.throws(() => alice.createGroup("g", []), { code: "OUTBOX_FULL" });
  alice.setOffline(false);
  await clock.until(() => seqs(alice, withBob(alice)).join() === "1,2");
  await clock.advance(5_000);
  await alice.send(withBob(alice), "three");
  await clock.until(() => server.count("send") === 3);
});

test("what is no text is sent, shown and edited with its data", async (t) => {
  const { clock, alice, bob } = await setUpOnline(t, "alice", "bob");
  await alice.send(withBob(alice), { type: "image", data: { objectKey: "k1" } });
  const shown = (client, key) => client.messages(key).map(({ kind, text, data }) => ({ kind, text, data }));
  assert.deepEqual(shown(alice, withBob(alice)), [{ kind: "image", text: "", data: { objectKey: "k1" } }], "at once");
  await clock.until(() => bob.messages(bob.keyFor("alice")).length === 1);
  assert.deepEqual(shown(bob, bob.keyFor("alice")), [{ kind: "image", text: "", data: { objectKey: "k1" } }]);
  await clock.advance(5_000);
  await alice.edit(withBob(alice), alice.messages(withBob(alice))[0], { data: { objectKey: "k2" } });
  assert.equal(alice.messages(withBob(alice))[0].data.objectKey, "k2", "at once");
  await clock.until(() => bob.messages(bob.keyFor("alice"))[0].data.objectKey === "k2");
  await assert.rejects(alice.send(withBob(alice), { type: "text", text: " " }), RangeError);
});

test("what others wrote before the end that a device begins with is delivered, though the end is all the user's own", async (t) => {
  const { clock, server, online } = setUp(t);
  for (let i = 0; i < 5; i++) server.post("alice", { to: "bob" }, "from alice");
  const { conversationId } = server.post("alice", { to: "bob" }, "the last of alice's");
  for (let i = 0; i < 4; i++) server.post("bob", { conversationId }, "from another device of bob's");
  const bob = await online("bob", { limits: { late: 6, end: 3 } });
  await clock.advance(5_000);
  assert.equal(bob.messages(conversationId).length, 3);
  assert.equal(server.line("bob", conversationId).deliveredSeq, 10);
  const asked = server.count("ack");
  bob.setOffline(true);
  bob.setOffline(false);
  await clock.advance(5_000);
  assert.equal(server.count("ack"), asked, "and told once");
});

test("G10: gaps in hundreds of conversations are pulled a few at a time", async (t) => {
  const { clock, server, online } = setUp(t);
  const ids = Array.from({ length: 100 }, (_, i) => server.post(`user${i}`, { to: "bob" }, "hi").conversationId);
  const bob = await online("bob");
  await clock.advance(5_000);
  server.pushes = () => 0;
  ids.forEach((conversationId, i) => server.post(`user${i}`, { conversationId }, "lost"));
  await clock.advance(1_000);
  server.pushes = () => 1;
  const retryAfterMs = 5_000, each = 10, atOnce = 4;
  let since = -Infinity, admitted = 0, refused = 0, windows = 0;
  server.refuse = ({ action }) => {
    if (action !== "sync") return undefined;
    if (clock.now() - since >= retryAfterMs) [since, admitted, windows] = [clock.now(), 0, windows + 1];
    if (admitted++ < each) return undefined;
    refused++;
    return { code: "BUSY", message: "too fast", retryable: true, details: { retryAfterMs } };
  };
  ids.forEach((conversationId, i) => server.post(`user${i}`, { conversationId }, "after it"));
  await clock.until(() => ids.every((id) => bob.messages(id).length === 3), 300_000);
  assert.ok(refused <= atOnce * windows, `${refused} refused in ${windows} windows`);
});

// Limits writes as the real server does: 50 at once, ten more a second, and who is refused 100 times, and 20 more a
// second, is thrown out. Returns how often that was.
function limitWrites(server, clock) {
  const bucket = (burst, perSecond) => {
    let [tokens, at] = [burst, clock.now()];
    return () => {
      [tokens, at] = [Math.min(burst, tokens + ((clock.now() - at) * perSecond) / 1_000), clock.now()];
      return tokens >= 1 ? (tokens--, 0) : Math.ceil(((1 - tokens) * 1_000) / perSecond);
    };
  };
  let thrown = 0;
  const writes = bucket(50, 10);
  const refusals = bucket(100, 20);
  server.refuse = ({ action }) => {
    const retryAfterMs = ["ack", "tell", "send"].includes(action) ? writes() : 0;
    if (retryAfterMs === 0) return undefined;
    if (refusals() > 0) thrown++;
    return { code: "BUSY", message: "too fast", retryable: true, details: { retryAfterMs } };
  };
  return () => thrown;
}

test("G10: who comes back into hundreds of conversations tells of all, and is not too fast again and again", async (t) => {
  const { clock, server, online } = setUp(t);
  const senders = Array.from({ length: 300 }, (_, i) => `user${i}`);
  const ids = senders.map((sender) => server.post(sender, { to: "bob" }, "hi").conversationId);
  const thrown = limitWrites(server, clock);
  await online("bob");
  await clock.advance(60_000);
  assert.deepEqual(ids.filter((id) => server.line("bob", id).deliveredSeq < 1), []);
  assert.equal(thrown(), 0);
});

test("G10: who hears of hundreds of conversations at once tells of all, and is not too fast again and again", async (t) => {
  const { clock, server, online } = setUp(t);
  const thrown = limitWrites(server, clock);
  await online("bob");
  const ids = Array.from({ length: 300 }, (_, i) => server.post(`user${i}`, { to: "bob" }, "hi").conversationId);
  await clock.advance(60_000);
  assert.deepEqual(ids.filter((id) => server.line("bob", id).deliveredSeq < 1), []);
  assert.equal(thrown(), 0);
});

test("G10: what was written to hundreds of people is sent, and is not too fast again and again", async (t) => {
  const { clock, server, online } = setUp(t);
  const thrown = limitWrites(server, clock);
  const alice = await online("alice");
  const keys = Array.from({ length: 300 }, (_, i) => alice.keyFor(`user${i}`));
  await Promise.all(keys.map((key) => alice.send(key, "hi")));
  await clock.advance(60_000);
  assert.deepEqual(keys.filter((key) => alice.messages(key)[0]?.state !== "sent"), []);
  assert.equal(thrown(), 0);
});

for (const [name, limitMs, interfere] of [
  ["refused", 1_000, (server, isHot) => (server.refuse = (frame) => (isHot(frame) ? { code: "BUSY", message: "contention", retryable: true } : undefined))],
  ["full", 1_000, (server, isHot) => (server.refuse = (frame) => (isHot(frame) ? { code: "BUSY", message: "full", retryable: true, field: "conversationId", details: { retryAfterMs: 7_000 } } : undefined))],
  ["unanswered", 7_000, (server, isHot) => (server.answer = (frame) => (isHot(frame) ? "lose" : undefined))],
]) {
  test(`G10: conversations into which nothing can be sent hold up no other: ${name}`, async (t) => {
    const { clock, server, online } = setUp(t);
    interfere(server, ({ action, to }) => action === "send" && to?.startsWith("hot"));
    const alice = await online("alice");
    for (let i = 0; i < 8; i++) await alice.send(alice.keyFor(`hot${i}`), "hi");
    for (let i = 0; i < 10; i++) {
      await alice.send(alice.keyFor("bob"), "hi");
      await clock.until(() => alice.messages(alice.keyFor("bob")).at(-1).state === "sent", limitMs);
      await clock.advance(4_000);
    }
  });
}

test("G10: positions that the server does not take in hold up no other for long", async (t) => {
  const { clock, server, online } = setUp(t);
  const ids = Array.from({ length: 8 }, (_, i) => server.post(`user${i}`, { to: "bob" }, "hi").conversationId);
  server.answer = ({ action, conversationId }) => (action === "ack" && ids.includes(conversationId) ? "lose" : undefined);
  const other = server.post("alice", { to: "bob" }, "hi").conversationId;
  await online("bob");
  await clock.until(() => server.line("bob", other).deliveredSeq === 1, 30_000);
});
