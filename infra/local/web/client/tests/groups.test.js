import { test } from "node:test";
import assert from "node:assert/strict";
import { MAX_TITLE_RUNES } from "../client.js";
import { TIMING } from "../engine.js";
import { MemoryStore } from "../store.js";
import { settled } from "./clock.js";
import { seqs, setUp, texts } from "./world.js";
import { eventWords } from "../../words.js";

// A group of alice, who made it, bob and carol, with alice and bob online.
async function setUpGroup(t, options) {
  const world = setUp(t);
  const alice = await world.online("alice", options);
  const bob = await world.online("bob");
  const key = alice.createGroup("Trip", ["bob", "carol"]);
  await world.clock.until(() => bob.conversations().length === 1);
  await world.clock.advance(1_000);
  return { ...world, alice, bob, key, id: alice.currentKey(key) };
}

const lines = (client, key) => client.messages(key).filter(({ kind }) => kind === "event").map((row) => eventWords(row, client.userId));
const roles = (client, key) => client.members(key)?.map(({ userId, role }) => `${userId} ${role}`);

test("a group is there at once, and gets its id from the server", async (t) => {
  const { clock, online } = setUp(t);
  const alice = await online("alice");
  const bob = await online("bob");
  const key = alice.createGroup("Trip", ["bob", "carol"]);
  assert.deepEqual(alice.conversations().map(({ title, kind, role, closed, last }) => [title, kind, role, closed, last.state]), [["Trip", "group", "member", null, "sending"]]);
  alice.send(key, "hello"); // it is not made yet
  await clock.until(() => bob.conversations()[0]?.unread === 1);
  assert.match(alice.currentKey(key), /^group:/);
  await clock.advance(1_000);
  for (const client of [alice, bob]) {
    const { title, kind, memberCount, closed } = client.conversations()[0];
    assert.deepEqual([title, kind, memberCount, closed], ["Trip", "group", 3, null]);
  }
  assert.deepEqual([alice, bob].map((client) => client.conversations()[0].role), ["owner", "member"]);
  assert.deepEqual(lines(bob, bob.conversations()[0].key), ["alice made the group “Trip” with you and carol"]);
  assert.deepEqual(texts(alice, key), ["", "hello"]);
  assert.equal(alice.conversation(key).key, alice.currentKey(key));
});

test("titles are checked before anything is sent", async (t) => {
  const { online, server } = setUp(t);
  const alice = await online("alice");
  assert.throws(() => alice.createGroup(" ", []), RangeError);
  assert.throws(() => alice.createGroup("😀".repeat(MAX_TITLE_RUNES + 1), []), RangeError);
  await assert.rejects(alice.setTitle("group:g", ""), RangeError);
  assert.equal(server.count("createGroup"), 0);
});

test("G3: a group is made once, however often its answer is lost", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  server.answer = (frame) => (frame.action === "createGroup" ? "lose" : undefined);
  server.pushes = () => 0;
  const key = alice.createGroup("Trip", ["bob"]);
  await alice.send(key, "hello");
  await clock.until(() => server.count("createGroup") === 2);
  alice.setOffline(true); // and a reload in between
  server.answer = () => undefined;
  const reloaded = await online("alice", { store });
  await clock.until(() => server.count("send") === 1);
  await clock.advance(1_000);
  assert.equal(server.conversations.size, 1);
  assert.deepEqual(texts(reloaded, [...server.conversations.keys()][0]), ["", "hello"]);
  assert.equal((await store.load()).outbox.length, 0);
});

test("the push of the making stands for the lost answer", async (t) => {
  const { clock, server, online } = setUp(t);
  const alice = await online("alice");
  server.answer = (frame) => (frame.action === "createGroup" ? "lose" : undefined);
  const key = alice.createGroup("Trip", ["bob"]);
  alice.show(key);
  await alice.send(key, "hello");
  await clock.until(() => server.count("send") === 1, 1_000);
  await clock.advance(1_000);
  assert.deepEqual(alice.messages(key).map(({ seq, state }) => [seq, state]), [[1, "sent"], [2, "sent"]]);
  assert.equal(server.count("createGroup"), 1);
  assert.deepEqual(roles(alice, key), ["alice owner", "bob member"]);
});

test("a group that is refused takes what was meant for it along", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  server.refuse = (frame) => (frame.action === "createGroup" ? { code: "BAD_REQUEST", message: "no such user id", retryable: false } : undefined);
  const key = alice.createGroup("Trip", ["b\u0000b"]);
  await alice.send(key, "hello");
  await clock.until(() => alice.conversation(key).closed === "failed");
  assert.deepEqual(alice.messages(key).map(({ state, error }) => [state, error]), [
    ["failed", { code: "BAD_REQUEST", message: "no such user id", retryable: false }],
    ["failed", { code: "NOT_FOUND", message: "the group could not be made", retryable: false }],
  ]);
  assert.equal(server.count("send"), 0);
  alice.discard(alice.messages(key)[0].clientMsgId);
  await settled();
  assert.deepEqual(alice.conversations(), []);
  assert.equal((await store.load()).outbox.length, 0);
});

test("every change is a line for everyone, and the members follow", async (t) => {
  const { clock, alice, bob, key, id } = await setUpGroup(t);
  for (const client of [alice, bob]) client.show(id);
  await clock.advance(200);
  assert.deepEqual(roles(alice, key), ["alice owner", "bob member", "carol member"]);
  await alice.addMembers(key, ["dave", "erin"]);
  await alice.setRole(key, "bob", "admin");
  await alice.removeMembers(key, ["erin"]);
  await alice.setTitle(key, "Journey");
  await clock.until(() => bob.conversation(id).title === "Journey");
  await clock.advance(1_000);
  const want = ["alice owner", "bob admin", "carol member", "dave member"];
  assert.deepEqual(roles(alice, key), want);
  assert.deepEqual(roles(bob, id), want);
  assert.equal(bob.conversation(id).memberCount, 4);
  assert.deepEqual(lines(bob, id).slice(1), ["alice added dave and erin", "alice made you an admin", "alice removed erin", "alice named the group “Journey”"]);
  assert.deepEqual(
    ["add", "setTitle", "setRole", "dissolve"].map((action) => [alice, bob].map((client) => client.may(id, action))),
    [[true, true], [true, true], [true, false], [true, false]],
  );
  await alice.setRole(key, "bob", "owner");
  await clock.until(() => bob.may(id, "dissolve"));
  await clock.advance(1_000);
  assert.equal(alice.conversation(key).role, "admin");
});

test("the members are read in pages, and again only after a change", async (t) => {
  const { clock, server, alice, key, id } = await setUpGroup(t);
  server.listSize = 2;
  alice.show(key);
  await clock.advance(1_000);
  assert.deepEqual(roles(alice, key), ["alice owner", "bob member", "carol member"]);
  assert.equal(server.count("members"), 2);
  await alice.send(key, "hello");
  alice.show(null);
  alice.show(key);
  await clock.advance(1_000);
  assert.equal(server.count("members"), 2);
  server.act("bob", "leave", { conversationId: id });
  await clock.advance(1_000);
  assert.deepEqual(roles(alice, key), ["alice owner", "carol member"]);
  assert.equal(server.count("members"), 3);
});

test("pages of a roster that changes meanwhile are not mixed", async (t) => {
  const { clock, server, alice, key, id } = await setUpGroup(t);
  server.listSize = 2;
  let changes = 1;
  server.answer = (frame) => {
    if (frame.action === "members" && changes-- > 0) server.act("alice", "removeMembers", { conversationId: id, members: ["bob"] });
    return undefined;
  };
  server.pushes = () => 0;
  alice.show(key);
  await clock.advance(1_000);
  assert.deepEqual(roles(alice, key), ["alice owner", "carol member"]);
});

test("who is removed keeps what was there, and hears nothing after", async (t) => {
  const { clock, server, alice, bob, key, id } = await setUpGroup(t);
  await alice.send(key, "before");
  await alice.removeMembers(key, ["bob"]);
  await alice.send(key, "after");
  await clock.until(() => bob.conversation(id).closed === "left");
  await clock.advance(1_000);
  assert.deepEqual(texts(bob, id), ["", "before", ""]);
  assert.equal(bob.may(id, "send"), false);
  const late = await bob.send(id, "too late");
  await clock.advance(1_000);
  assert.deepEqual(bob.messages(id).find(({ clientMsgId }) => clientMsgId === late).error, { code: "NOT_FOUND", message: "no such conversation", retryable: false });
  bob.discard(late);

  await alice.setTitle(key, "Without bob");
  await alice.addMembers(key, ["bob"]);
  await alice.send(key, "welcome back");
  await clock.until(() => texts(bob, id).includes("welcome back"));
  await clock.advance(1_000);
  assert.deepEqual(seqs(bob, id), [1, 2, 3, 6, 7], "the middle stays hidden");
  assert.deepEqual([bob.conversation(id).closed, bob.conversation(id).title, bob.conversation(id).unread], [null, "Without bob", 2]);
  const asked = server.count("sync");
  await alice.send(key, "still here?");
  await clock.advance(1_000);
  assert.deepEqual(seqs(bob, id), [1, 2, 3, 6, 7, 8]);
  assert.equal(server.count("sync"), asked);
});

test("leaving hands the group on, and the last to leave dissolves it", async (t) => {
  const { clock, server, alice, bob, key, id } = await setUpGroup(t);
  bob.show(id);
  await alice.setRole(key, "bob", "admin");
  await alice.leave(key);
  await clock.until(() => bob.conversation(id).role === "owner");
  assert.equal(lines(bob, id).at(-1), "alice left, and you own the group now");
  assert.equal(alice.conversation(key).closed, "left");
  await bob.dissolve(id);
  await clock.until(() => bob.conversation(id).closed === "dissolved");
  await bob.send(id, "anyone?");
  await clock.advance(1_000);
  assert.deepEqual(bob.messages(id).at(-1).error, { code: "DISSOLVED", message: "the group is dissolved", retryable: false });
  assert.equal(server.conversations.get(id).head.state, "dissolved");
});

test("a dissolved group can be left, and what was left and cleared is on no list of any device", async (t) => {
  const { clock, online, alice, bob, key, id } = await setUpGroup(t);
  const laptop = await online("bob", { deviceId: "laptop" });
  await alice.dissolve(key);
  await clock.until(() => [bob, laptop].every((client) => client.conversation(id).closed === "dissolved"));
  assert.deepEqual([bob.may(id, "leave"), bob.may(id, "send")], [true, false]);
  await bob.leave(id);
  await clock.until(() => [bob, laptop].every((client) => client.conversation(id).closed === "left"));
  assert.equal(bob.conversations().length, 1);
  bob.clear(id);
  assert.deepEqual(bob.conversations(), [], "at once");
  await clock.until(() => laptop.conversations().length === 0);
  assert.deepEqual((await online("bob", { deviceId: "tablet" })).conversations(), []);
});

test("one who is added again has the conversation back", async (t) => {
  const { clock, server, alice, bob, key, id } = await setUpGroup(t);
  await alice.removeMembers(key, ["bob"]);
  await clock.until(() => bob.conversation(id).closed === "left");
  bob.clear(id);
  await clock.until(() => server.conversations.get(id).lines.get("bob").clearedSeq > 0);
  assert.deepEqual(bob.conversations(), []);
  await alice.addMembers(key, ["bob"]);
  await clock.until(() => bob.conversations().length === 1);
  assert.equal(bob.conversation(id).closed, null);
});

test("a device that was away for long hears of what was hidden meanwhile", async (t) => {
  const { clock, server, online, device } = setUp(t);
  const said = [];
  const laptop = device("bob", { deviceId: "laptop", log: (text) => said.push(text) });
  const groups = ["a", "b", "c", "d", "e"].map((name) => server.group(name, ["alice", "bob"]));
  for (const conversationId of groups) server.post("alice", { conversationId }, "hi");
  await laptop.start();
  await clock.until(() => laptop.conversations().length === groups.length);
  laptop.setOffline(true);
  const phone = await online("bob");
  for (const id of groups.slice(1)) {
    await phone.leave(id);
    await clock.until(() => phone.conversation(id).closed === "left");
    phone.clear(id);
  }
  await clock.until(() => groups.slice(1).every((id) => server.conversations.get(id).lines.get("bob").clearedSeq === 2));
  Object.assign(server, { floor: Infinity, listSize: 2 });
  laptop.setOffline(false);
  await clock.until(() => laptop.conversations().length === 1);
  assert.deepEqual(said, [], "it does not take the list for another world's");
  const tablet = await online("bob", { deviceId: "tablet" });
  assert.deepEqual(tablet.conversations().map((line) => line.key), groups.slice(0, 1));
});

test("what is refused says so in its place", async (t) => {
  const { clock, server, bob, id } = await setUpGroup(t);
  await bob.setTitle(id, "Mine");
  await clock.advance(1_000);
  const refused = bob.messages(id).at(-1);
  assert.deepEqual([refused.state, refused.error, bob.conversation(id).title], ["failed", { code: "FORBIDDEN", message: "your role is member", retryable: false }, "Trip"]);
  const before = server.count("setTitle");
  await clock.advance(60_000);
  assert.equal(server.count("setTitle"), before);
  bob.discard(refused.clientMsgId);
  assert.deepEqual(seqs(bob, id), [1]);
});

test("G3: a change whose answer is lost is made once", async (t) => {
  const { clock, server, alice, key, id } = await setUpGroup(t);
  let lost = 2;
  server.pushes = () => 0;
  server.answer = (frame) => (frame.action === "addMembers" && lost-- > 0 ? "lose" : undefined);
  await alice.addMembers(key, ["dave"]);
  await clock.until(() => server.count("addMembers") === 3);
  await clock.advance(10_000);
  assert.deepEqual(seqs(alice, key), [1, 2]);
  assert.equal(server.entries(id).length, 2);
});

test("someone added later sees all, or from then on", async (t) => {
  const { clock, server, alice, online } = await setUpGroup(t);
  for (const [visibility, want] of [["all", [1, 2, 3]], ["sinceJoin", [3]]]) {
    const id = server.act("alice", "createGroup", { title: visibility, members: [], visibility }).conversationId;
    server.post("alice", { conversationId: id }, "before");
    const newcomer = await online(`newcomer ${visibility}`);
    await alice.addMembers(id, [newcomer.userId]);
    await clock.until(() => newcomer.conversation(id).title === visibility);
    await clock.advance(1_000);
    assert.deepEqual(seqs(newcomer, id), want);
    assert.equal(newcomer.conversation(id).unread, 1, "what was before counts as read");
  }
});

test("large groups: heads are compared, and their events followed", async (t) => {
  const { clock, server, alice, bob, key, id } = await setUpGroup(t);
  server.inboxGroupMax = 2;
  bob.setOffline(true);
  await alice.send(key, "while you were away");
  await alice.setTitle(key, "Crowd");
  await clock.advance(1_000);
  bob.setOffline(false);
  await clock.until(() => bob.conversation(id).title === "Crowd");
  assert.deepEqual(texts(bob, id), ["", "while you were away", ""]);
  assert.deepEqual(server.asked("changes").at(-1).syncCursor > 0, true);
});

test("a system conversation can be read only", async (t) => {
  const { clock, server, online } = setUp(t);
  const alice = await online("alice");
  const id = server.system("order:1", ["alice", "bob"], "Your order");
  server.post("system", { conversationId: id }, "It is on its way.", { messageType: "system" });
  await clock.until(() => alice.conversations()[0]?.title === "Your order");
  alice.show(id);
  alice.markRead(id);
  await clock.advance(1_000);
  const { kind, closed, unread } = alice.conversation(id);
  assert.deepEqual([kind, closed, unread], ["system", "system", 0]);
  assert.deepEqual(texts(alice, id), ["It is on its way."]);
  assert.deepEqual([server.count("members"), server.count("receipts")], [0, 0], "its readers are not told of each other");
  assert.equal(server.conversations.get(id).lines.get("alice").readSeq, 1);
});

test("a list of conversations that does not fit one answer is read to its end", async (t) => {
  const { clock, server, online } = setUp(t);
  server.listSize = 3;
  for (let i = 0; i < 10; i++) server.post(`peer ${i}`, { to: "alice" }, "hi");
  const alice = await online("alice");
  await clock.advance(1_000);
  assert.equal(alice.conversations().length, 10);
  assert.equal(server.count("conversations"), 3);
});

test("a server that began anew is followed, and what was not sent is sent there", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  const id = server.post("bob", { to: "alice" }, "old").conversationId;
  await clock.advance(1_000);
  alice.markRead(id);
  await clock.advance(1_000);
  alice.setOffline(true);
  await alice.send(id, "from my pocket");
  server.wipe();
  server.post("bob", { to: "alice" }, "new");
  alice.setOffline(false);
  await clock.until(() => alice.messages("to:bob").every(({ seq }) => seq !== null));
  await clock.advance(TIMING.pingMs);
  assert.deepEqual(texts(alice, id), ["new", "from my pocket"]);
  assert.equal(alice.conversation(id).unread, 1);
  const { messages, outbox } = await store.load();
  assert.deepEqual(messages.map(({ text }) => text), ["new", "from my pocket"]);
  assert.deepEqual(outbox, []);
});

test("a server that began anew is noticed by what its whole list lacks", async (t) => {
  const { clock, server, online } = setUp(t);
  const alice = await online("alice");
  await alice.send("to:bob", "old");
  await clock.advance(1_000);
  const id = alice.currentKey("to:bob");
  server.wipe();
  server.cutAll();
  await clock.advance(TIMING.pingMs);
  assert.deepEqual(alice.conversations(), []);
  assert.equal(alice.conversation(id).closed, "unknown");
  await alice.send("to:bob", "new");
  await clock.until(() => alice.messages("to:bob")[0]?.seq === 1);
  assert.deepEqual(texts(alice, "to:bob"), ["new"]);
});
