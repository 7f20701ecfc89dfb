import { test } from "node:test";
import assert from "node:assert/strict";
import { TIMING } from "../engine.js";
import { MemoryStore } from "../store.js";
import { seqs, setUp, setUpOnline, texts } from "./world.js";

// alice and bob, and a message of hers that both have.
async function setUpPair(t, options) {
  const world = setUp(t);
  const alice = await world.online("alice", options);
  const bob = await world.online("bob");
  return sayHelo(world, alice, bob);
}

// Alice and bob, who have both written: each hears the other's positions.
async function setUpFriends(t) {
  const world = setUp(t);
  world.server.post("bob", { to: "alice" }, "hi");
  return sayHelo(world, await world.online("alice"), await world.online("bob"));
}

async function sayHelo(world, alice, bob) {
  await alice.send("to:bob", "helo");
  await world.clock.until(() => bob.conversations()[0]?.unread === 1);
  await world.clock.advance(1_000);
  const id = alice.currentKey("to:bob");
  return { ...world, alice, bob, id, row: () => alice.messages(id)[0] };
}

const shown = (client, id) => client.messages(id).map(({ text, recalled, edited }) => (recalled ? "recalled" : edited ? `${text} (edited)` : text));

test("an edit is seen at once here, and soon there", async (t) => {
  const { clock, server, alice, bob, id, row } = await setUpPair(t);
  const done = alice.edit(id, row(), "hello");
  assert.deepEqual(shown(alice, id), ["hello (edited)"]);
  assert.equal(row().revision.state, "sending");
  await done;
  await clock.until(() => shown(bob, id)[0] === "hello (edited)");
  await clock.advance(1_000);
  assert.equal(row().revision, null);
  assert.deepEqual(server.asked("edit").map(({ seq, version, text }) => [seq, version, text]), [[1, 1, "hello"]]);
  await assert.rejects(alice.edit(id, row(), " "), RangeError);
});

test("edits made one after the other, also offline, build on each other", async (t) => {
  const { clock, alice, bob, id, row } = await setUpPair(t);
  alice.setOffline(true);
  await alice.edit(id, row(), "hello");
  await alice.edit(id, row(), "hello!");
  assert.deepEqual(shown(alice, id), ["hello! (edited)"]);
  alice.setOffline(false);
  await clock.until(() => shown(bob, id)[0] === "hello! (edited)");
  await clock.advance(1_000);
  assert.equal(row().revision, null);
});

test("an edit that came second is refused, and kept to look at", async (t) => {
  const { clock, server, alice, online, id, row } = await setUpPair(t);
  const other = await online("alice", { deviceId: "web-2" });
  for (const client of [alice, other]) client.setOffline(true);
  await alice.edit(id, row(), "from the first");
  await other.edit(id, other.messages(id)[0], "from the second");
  alice.setOffline(false);
  await clock.until(() => server.count("edit") === 1);
  await clock.advance(1_000);
  other.setOffline(false);
  await clock.until(() => other.messages(id)[0].revision?.state === "failed");
  await clock.advance(1_000);
  const { text, revision } = other.messages(id)[0];
  assert.equal(text, "from the first");
  assert.deepEqual([revision.text, revision.error], ["from the second", { code: "VERSION_CONFLICT", message: "the message was changed meanwhile", retryable: false }]);
  other.discard(revision.clientMsgId);
  await other.edit(id, other.messages(id)[0], revision.text);
  await clock.until(() => shown(alice, id)[0] === "from the second (edited)");
});

test("a recall takes the text away everywhere, from the edits too", async (t) => {
  const store = new MemoryStore();
  const { clock, alice, bob, id, row } = await setUpPair(t, { store });
  await alice.edit(id, row(), "secret");
  await clock.advance(1_000);
  await alice.recall(id, row());
  assert.equal(row().revision.action, "recall");
  await clock.until(() => shown(bob, id)[0] === "recalled");
  await clock.advance(1_000);
  assert.deepEqual(shown(alice, id), ["recalled"]);
  assert.equal(row().revision, null);
  assert.ok(!JSON.stringify(await store.load()).includes("secret"));
});

test("G8: a recall beats an edit, whichever came first", async (t) => {
  const { clock, alice, bob, online, id, row } = await setUpPair(t);
  const other = await online("alice", { deviceId: "web-2" });
  for (const client of [alice, other]) client.setOffline(true);
  await alice.recall(id, row());
  await other.edit(id, other.messages(id)[0], "edited");
  alice.setOffline(false);
  await clock.until(() => shown(bob, id)[0] === "recalled");
  other.setOffline(false);
  await clock.until(() => other.messages(id)[0].revision?.state === "failed");
  await clock.advance(1_000);
  for (const client of [alice, other, bob]) assert.deepEqual(shown(client, id), ["recalled"]);
});

test("a message that both devices recall is recalled once", async (t) => {
  const { clock, server, alice, online, id, row } = await setUpPair(t);
  const other = await online("alice", { deviceId: "web-2" });
  await Promise.all([alice.recall(id, row()), other.recall(id, other.messages(id)[0])]);
  await clock.advance(5_000);
  assert.equal(server.entries(id).length, 2);
  for (const client of [alice, other]) assert.deepEqual([shown(client, id), client.messages(id)[0].revision], [["recalled"], null]);
});

test("a recall that comes too late is told with its message", async (t) => {
  const { clock, server, alice, id, row } = await setUpPair(t);
  server.windowMs = 1;
  await alice.recall(id, row());
  await clock.until(() => row().revision?.state === "failed");
  assert.deepEqual([row().text, row().revision.error], ["helo", { code: "TOO_LATE", message: "the message cannot be recalled any more", retryable: false }]);
  alice.discard(row().revision.clientMsgId);
  assert.equal(row().revision, null);
});

test("G3: a recall whose answer is lost is made once, also after a reload", async (t) => {
  const store = new MemoryStore();
  const { clock, server, alice, online, id, row } = await setUpPair(t, { store });
  server.answer = (frame) => (frame.action === "recall" ? "cut" : undefined);
  server.pushes = () => 0;
  await alice.recall(id, row());
  await clock.until(() => server.count("recall") === 1);
  alice.setOffline(true);
  server.answer = () => undefined;
  const reloaded = await online("alice", { store });
  await clock.advance(5_000);
  assert.deepEqual(shown(reloaded, id), ["recalled"]);
  assert.equal(server.entries(id).length, 2);
  assert.deepEqual((await store.load()).outbox, []);
});

test("the owner and admins recall what others wrote", async (t) => {
  const { clock, server, online } = setUp(t);
  const id = server.group("g", ["alice", "bob", "carol"]);
  const alice = await online("alice");
  const carol = await online("carol");
  server.post("bob", { conversationId: id }, "rude");
  await clock.until(() => texts(carol, id).length === 1);
  await carol.recall(id, carol.messages(id)[0]);
  await clock.until(() => carol.messages(id)[0].revision.state === "failed");
  assert.deepEqual(carol.messages(id)[0].revision.error, { code: "FORBIDDEN", message: "this message is not yours to recall", retryable: false });
  await alice.recall(id, alice.messages(id)[0]);
  await clock.until(() => shown(carol, id)[0] === "recalled");
});

test("G9: what was made of a message while the user was away is not for it", async (t) => {
  const store = new MemoryStore();
  const { clock, server, online } = setUp(t);
  const id = server.group("g", ["alice", "bob"], "sinceJoin");
  const bob = await online("bob", { store });
  const before = server.post("alice", { conversationId: id }, "before");
  await clock.until(() => texts(bob, id).length === 1);
  server.act("alice", "removeMembers", { conversationId: id, members: ["bob"] });
  const away = server.post("alice", { conversationId: id }, "away");
  server.act("alice", "addMembers", { conversationId: id, members: ["bob"] });
  for (const { seq, messageId } of [before, away]) server.act("alice", "edit", { conversationId: id, seq, messageId, version: 1, text: "edited" });
  await clock.advance(5_000);
  const fresh = await online("bob", { deviceId: "web-2" });
  fresh.show(id);
  await clock.advance(5_000);
  for (const client of [bob, fresh]) {
    let loaded = false;
    client.loadEarlier(id).then(() => (loaded = true));
    await clock.until(() => loaded || !client.conversation(id).earlier);
    assert.deepEqual(shown(client, id).filter((text) => text !== ""), ["before"]);
  }
  const held = (await store.load()).messages;
  assert.deepEqual(held.filter(({ event }) => event?.kind === "edit").map(({ text, withheld }) => [text, withheld]), [[undefined, true], [undefined, true]]);
  assert.ok(!JSON.stringify(held).includes("edited"));

  // A recall has no content, and reaches what the device has.
  server.act("alice", "recall", { conversationId: id, seq: before.seq, messageId: before.messageId });
  await clock.until(() => shown(bob, id)[0] === "recalled");
});

test("an answer shows what it answers, as that is now", async (t) => {
  const { clock, alice, bob, id, row } = await setUpPair(t);
  await bob.send(id, "hi", { replyTo: bob.messages(id)[0] });
  assert.equal(bob.messages(id)[1].quote.text, "helo");
  await clock.until(() => texts(alice, id).length === 2);
  const quote = () => alice.messages(id)[1].quote;
  assert.deepEqual(quote(), { seq: 1, senderId: "alice", kind: "text", text: "helo", recalled: false });
  await alice.edit(id, row(), "hello");
  await clock.advance(1_000);
  assert.equal(quote().text, "hello");
  await alice.recall(id, row());
  await clock.advance(1_000);
  assert.deepEqual([quote().text, quote().recalled], ["", true]);
  await alice.send(id, "and you?", { replyTo: alice.messages(id)[1] });
  await clock.advance(1_000);
  alice.clear(id);
  await clock.advance(1_000);
  assert.deepEqual(alice.messages(id), []);
  await bob.send(id, "fine", { replyTo: bob.messages(id)[2] });
  await clock.until(() => texts(alice, id).length === 1);
  assert.deepEqual(alice.messages(id)[0].quote, { seq: 5, senderId: null, kind: null, text: "", recalled: false });
});

// ---- positions and receipts ----

test("own messages are not acked: of two who talk, each acks what the other says", async (t) => {
  const { clock, server, online } = setUp(t);
  const [alice, bob] = [await online("alice"), await online("bob")];
  for (const client of [alice, bob]) client.addEventListener("change", () => client.conversations().forEach(({ key }) => client.markRead(key)));
  for (let i = 1; i <= 20; i++) {
    await (i % 2 ? alice.send("to:bob", `${i}`) : bob.send("to:alice", `${i}`));
    await clock.advance(2_000);
  }
  assert.deepEqual(server.asked("ack").map(({ deliveredSeq, readSeq }) => [deliveredSeq, readSeq]), Array.from({ length: 20 }, (_, i) => [i + 1, i + 1]));
});

test("who talks alone acks nothing, and nothing of it is unread on another device", async (t) => {
  const { clock, server, online, alice } = await setUpOnline(t, "alice");
  alice.addEventListener("change", () => alice.markRead("to:bob"));
  for (let i = 1; i <= 20; i++) await alice.send("to:bob", `${i}`);
  await clock.until(() => alice.messages("to:bob").every(({ state }) => state === "sent"));
  await clock.advance(1_000);
  server.erase("alice");
  await clock.advance(1_000);
  const phone = await online("alice", { deviceId: "phone" });
  assert.deepEqual(phone.conversations().map(({ unread }) => unread), [0]);
  phone.markRead("to:bob");
  await clock.advance(1_000);
  assert.equal(server.count("ack"), 0);
});

test("what nobody holds any more is unread until it is acked", async (t) => {
  const { clock, server, online } = setUp(t);
  const { conversationId } = server.post("alice", { to: "bob" }, "1");
  server.post("alice", { to: "bob" }, "2");
  server.post("bob", { to: "alice" }, "3");
  server.conversations.get(conversationId).holes.add(1).add(2);
  const bob = await online("bob");
  bob.markRead(conversationId);
  await clock.until(() => server.line("bob", conversationId).unread === 0, 2_000);
});

test("what arrives is told as delivered, together, and what is seen as read", async (t) => {
  const { clock, server, alice, bob, id } = await setUpFriends(t);
  await clock.advance(2_000);
  const before = server.count("ack");
  const acks = () => server.asked("ack").slice(before).map(({ deliveredSeq, readSeq }) => [deliveredSeq, readSeq]);
  for (const text of ["1", "2", "3"]) await alice.send(id, text);
  const sent = () => alice.messages(id).slice(1);
  await clock.until(() => sent().length === 4 && sent().every(({ receipt }) => receipt === "delivered"));
  await clock.advance(5_000);
  assert.deepEqual(acks(), [[5, undefined]], "one for all three, none for own ones");
  bob.markRead(id);
  assert.equal(bob.conversation(id).unread, 0);
  await clock.until(() => sent().every(({ receipt }) => receipt === "read"));
  assert.deepEqual(acks(), [[5, undefined], [undefined, 5]]);
  bob.markRead(id);
  await clock.advance(5_000);
  assert.equal(acks().length, 2);
});

test("what just arrived is told without an answer; the next catch-up finds out if that got lost", async (t) => {
  const { clock, server, alice, bob, id } = await setUpFriends(t);
  await clock.advance(2_000);
  const before = server.requests.length;
  const told = () => server.requests.slice(before).filter(({ frame }) => ["ack", "tell"].includes(frame.action)).map(({ frame }) => [frame.action, frame.deliveredSeq]);
  server.refuse = ({ action }) => (action === "tell" ? { code: "BUSY", message: "throttled", retryable: true } : undefined);
  await alice.send(id, "1");
  await clock.advance(60_000);
  assert.deepEqual(told(), [["tell", 3]], "which nobody carried out");
  assert.equal(server.line("bob", id).deliveredSeq, 2);
  await clock.advance(TIMING.heartbeatMs);
  assert.deepEqual(told(), [["tell", 3], ["ack", 3]]);
  assert.equal(server.line("bob", id).deliveredSeq, 3);
  server.refuse = () => undefined;
  await alice.send(id, "2");
  await clock.advance(3 * TIMING.heartbeatMs);
  assert.deepEqual(told().slice(2), [["tell", 4]], "what the server knows is not told again");
  assert.equal(alice.messages(id).at(-1).receipt, "delivered");
});

for (const next of ["catch-up", "reload"]) {
  test(`what was told without an answer in a large group is asked with the next ${next}`, async (t) => {
    const { clock, server, online } = setUp(t);
    server.inboxGroupMax = 2; // a catch-up tells the head alone
    const id = server.group("g", ["alice", "bob", "carol"]);
    server.post("carol", { to: "bob" }, "hi"); // so bob has a cursor, and is not given the whole list
    const store = new MemoryStore();
    const bob = await online("bob", { store });
    await clock.advance(2 * TIMING.heartbeatMs);
    const before = server.requests.length;
    const told = () => server.requests.slice(before).filter(({ frame }) => ["ack", "tell"].includes(frame.action)).map(({ frame }) => [frame.action, frame.readSeq]);
    server.refuse = ({ action }) => (action === "tell" ? { code: "BUSY", message: "throttled", retryable: true } : undefined);
    server.post("alice", { conversationId: id }, "1");
    await clock.advance(100);
    bob.markRead(id);
    await clock.advance(60_000);
    assert.deepEqual(told(), [["tell", 1]], "which nobody carried out");
    if (next === "reload") {
      bob.setOffline(true);
      await online("bob", { store });
    }
    await clock.advance(TIMING.heartbeatMs);
    assert.deepEqual(told(), [["tell", 1], ["ack", 1]]);
    assert.equal(server.line("bob", id).unread, 0);
    await clock.advance(2 * TIMING.heartbeatMs);
    assert.equal(told().length, 2, "what the server knows is not told again");
  });
}

test("a stranger does not hear how far we are, until we have answered", async (t) => {
  const { clock, server, alice, bob, row, id } = await setUpPair(t);
  bob.markRead(id);
  alice.show(id);
  await clock.advance(5_000);
  assert.equal(server.line("bob", id).readSeq, 1);
  assert.equal(row().receipt, null);
  const receipts = alice.receipts(id, 1);
  await clock.advance(1_000);
  assert.deepEqual(await receipts, { delivered: ["alice"], read: ["alice"] });
  await bob.send(id, "do I know you?");
  await clock.until(() => alice.messages(id)[0].receipt === "read", 1_000);
  assert.deepEqual(server.asked("ack").map(({ readSeq }) => readSeq), [undefined, 1], "bob told it once, before");
});

test("G7: one ack at a time per conversation, and never a smaller one", async (t) => {
  const { clock, server, alice, bob, id } = await setUpFriends(t);
  let inFlight = 0;
  let most = 0;
  server.latency = () => 400;
  server.refuse = ({ action }) => {
    if (action === "ack") most = Math.max(most, ++inFlight);
    return undefined;
  };
  server.answer = ({ action }) => {
    if (action === "ack") clock.setTimeout(() => inFlight--, 399);
    return undefined;
  };
  for (let i = 0; i < 20; i++) {
    server.post("alice", { conversationId: id }, `${i}`);
    bob.markRead(id);
    await clock.advance(150);
  }
  await clock.advance(5_000);
  bob.markRead(id);
  await clock.advance(5_000);
  assert.equal(most, 1);
  const told = server.asked("ack").map(({ readSeq = 0 }) => readSeq).filter((seq) => seq > 0);
  assert.deepEqual(told, told.toSorted((a, b) => a - b));
  assert.ok(server.count("ack") < 15, `${server.count("ack")} acks for 22 messages`);
  assert.equal(server.conversations.get(id).lines.get("bob").readSeq, 22);
  assert.equal(alice.messages(id)[1].receipt, "read");
});

test("what was read offline is told later; an ack that fails is tried again", async (t) => {
  const store = new MemoryStore();
  const { clock, server, online } = setUp(t);
  const bob = await online("bob", { store });
  const { conversationId: id } = server.post("alice", { to: "bob" }, "hi");
  await clock.advance(2_000);
  bob.setOffline(true);
  bob.markRead(id);
  await clock.advance(1_000);
  let busy = 3;
  server.refuse = ({ action }) => (action === "ack" && busy-- > 0 ? { code: "BUSY", message: "throttled", retryable: true } : undefined);
  const reloaded = await online("bob", { store });
  assert.equal(reloaded.conversation(id).unread, 0);
  await clock.until(() => server.conversations.get(id).lines.get("bob").readSeq === 1);
  assert.equal(busy, -1);
  const asked = server.count("ack");
  await clock.advance(TIMING.heartbeatMs);
  assert.equal(server.count("ack"), asked);
});

test("nothing is told as delivered before it is stored", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  let release = null;
  const held = new Promise((resolve) => (release = resolve));
  const slow = { shared: false, claim: (atLeast) => store.claim(atLeast), load: () => store.load(), close: () => {}, commit: async (change) => (await (change.messages ? held : null), store.commit(change)) };
  const bob = await online("bob", { store: slow });
  server.post("alice", { to: "bob" }, "hi");
  await clock.advance(5_000);
  assert.deepEqual([texts(bob, bob.keyFor("alice")), server.count("ack")], [["hi"], 0]);
  release();
  await clock.until(() => server.count("ack") === 1);
  assert.equal((await store.load()).messages.length, 1);
});

test("an ack that the server answers with less is not repeated for ever", async (t) => {
  const { clock, server, bob, id } = await setUpPair(t);
  server.answer = (frame) => (frame.action === "ack" ? { type: "reply", id: frame.id, result: { deliveredSeq: 1, readSeq: 0 } } : undefined);
  bob.markRead(id);
  await clock.advance(60_000);
  assert.deepEqual(server.asked("ack").filter(({ readSeq }) => readSeq !== undefined).length, 1);
});

test("what another device of ours read is read here", async (t) => {
  const { clock, server, bob, online, id } = await setUpPair(t);
  const other = await online("bob", { deviceId: "web-2" });
  assert.equal(other.conversation(id).unread, 1);
  bob.markRead(id);
  await clock.until(() => other.conversation(id).unread === 0);
  server.pushes = () => 0; // and the same by `changes`
  server.post("alice", { conversationId: id }, "again");
  for (const client of [bob, other]) client.setOffline(true), client.setOffline(false);
  await clock.until(() => [bob, other].every((client) => texts(client, id).length === 2 && client.conversation(id).unread === 1));
  bob.markRead(id);
  await clock.advance(2_000);
  other.setOffline(true);
  other.setOffline(false);
  await clock.until(() => other.conversation(id).unread === 0);
});

test("the marks of the last own message survive a device that was away", async (t) => {
  const { clock, server, alice, bob, online, id } = await setUpFriends(t);
  await clock.advance(2_000);
  alice.setOffline(true);
  bob.markRead(id);
  await clock.advance(2_000);
  alice.setOffline(false);
  await clock.advance(2_000);
  assert.equal(alice.messages(id)[1].receipt, "delivered", "nobody looks");
  alice.show(id);
  await clock.until(() => alice.messages(id)[1].receipt === "read");
  const fresh = await online("alice", { deviceId: "web-9" });
  fresh.show(id);
  await clock.until(() => fresh.messages(id)[1].receipt === "read");
  assert.equal(server.asked("receipts").at(-1).seq, 2);
  const asked = server.count("receipts");
  alice.show(id);
  await clock.advance(2_000);
  assert.equal(server.count("receipts"), asked, "all have read it: nothing more to hear");
});

test("in a group, the marks count who has read; who came later does not matter", async (t) => {
  const { clock, server, online } = setUp(t);
  const id = server.group("g", ["alice", "bob", "carol"]);
  const alice = await online("alice");
  const bob = await online("bob");
  await alice.send(id, "hello");
  alice.show(id);
  await clock.until(() => bob.conversation(id).unread === 1);
  await clock.advance(1_000);
  const mark = () => (({ receipt, readBy, audience }) => [receipt, readBy, audience])(alice.messages(id)[0]);
  assert.deepEqual(mark(), [null, [], 2]);
  bob.markRead(id);
  await clock.until(() => mark()[1].length === 1);
  assert.deepEqual(mark(), [null, ["bob"], 2]);
  const carol = await online("carol");
  await clock.until(() => mark()[0] === "delivered");
  carol.markRead(id);
  await clock.until(() => mark()[0] === "read");
  await alice.addMembers(id, ["dave"]);
  await clock.until(() => alice.members(id).length === 4);
  assert.deepEqual(mark()[0], "read");
  server.listSize = 2;
  const receipts = alice.receipts(id, 1);
  await clock.advance(100);
  const all = ["alice", "bob", "carol"]; // dave came later
  assert.deepEqual(await receipts, { delivered: all, read: all });
});

test("clearing hides everything, on all devices and after a reload", async (t) => {
  const store = new MemoryStore();
  const { clock, server, alice, online } = await setUpPair(t);
  const bob = await online("bob", { deviceId: "web-2", store });
  const id = bob.keyFor("alice");
  const other = await online("bob", { deviceId: "web-3" });
  bob.setOffline(true);
  bob.clear(id);
  assert.deepEqual(bob.messages(id), []);
  bob.setOffline(false);
  await clock.until(() => other.messages(id).length === 0);
  assert.equal(other.conversation(id).unread, 0);
  bob.setOffline(true);
  const reloaded = await online("bob", { deviceId: "web-2", store });
  assert.deepEqual(reloaded.messages(id), []);
  await alice.send("to:bob", "new");
  await clock.until(() => texts(reloaded, id).length === 1);
  assert.deepEqual(texts(other, id), ["new"]);
  assert.deepEqual(server.asked("clear").map(({ throughSeq }) => throughSeq), [1]);
});

// ---- long conversations ----

test("a device that comes to a long conversation begins with its end, and loads the rest on demand", async (t) => {
  const { clock, server, online } = setUp(t);
  for (let i = 1; i <= 50; i++) server.post("alice", { to: "bob" }, `${i}`);
  const id = [...server.conversations.keys()][0];
  server.act("bob", "ack", { conversationId: id, readSeq: 30 });
  const store = new MemoryStore();
  const limits = { late: 20, end: 10, pull: 15 };
  const bob = await online("bob", { store, limits });
  await clock.until(() => texts(bob, id).length === 10);
  assert.deepEqual(seqs(bob, id)[0], 41);
  assert.deepEqual([bob.conversation(id).earlier, bob.conversation(id).unread], [true, 20]);
  assert.equal(server.count("sync"), 1);
  server.post("alice", { conversationId: id }, "51");
  await clock.until(() => seqs(bob, id).at(-1) === 51);

  const load = async (client) => {
    const loading = client.loadEarlier(id);
    await clock.advance(100);
    await loading;
  };
  await load(bob);
  assert.deepEqual([seqs(bob, id)[0], bob.conversation(id).unread], [26, 21]);
  bob.setOffline(true);
  await assert.rejects(bob.loadEarlier(id), { code: "DISCONNECTED" });
  const reloaded = await online("bob", { store, limits });
  assert.deepEqual([seqs(reloaded, id)[0], reloaded.conversation(id).earlier], [26, true], "a reload keeps what was loaded");
  await load(reloaded);
  await load(reloaded);
  assert.deepEqual(seqs(reloaded, id), Array.from({ length: 51 }, (_, i) => i + 1));
  assert.equal(reloaded.conversation(id).earlier, false);
  const asked = server.count("history");
  await load(reloaded);
  assert.equal(server.count("history"), asked);
});

test("a device that was away for long has no hole in what it holds", async (t) => {
  const { clock, server, online } = setUp(t);
  const bob = await online("bob", { limits: { late: 20, end: 10 } });
  const { conversationId: id } = server.post("alice", { to: "bob" }, "1");
  await clock.advance(1_000);
  bob.setOffline(true);
  for (let i = 2; i <= 50; i++) server.post("alice", { to: "bob" }, `${i}`);
  bob.setOffline(false);
  await clock.until(() => texts(bob, id).length === 50);
});

test("what was cleared is not earlier", async (t) => {
  const { clock, server, online } = setUp(t);
  for (let i = 1; i <= 50; i++) server.post("alice", { to: "bob" }, `${i}`);
  const id = [...server.conversations.keys()][0];
  server.act("bob", "clear", { conversationId: id, throughSeq: 25 });
  const bob = await online("bob", { limits: { late: 20, end: 40 } });
  await clock.until(() => texts(bob, id).length === 25);
  assert.equal(bob.conversation(id).earlier, false);
});
