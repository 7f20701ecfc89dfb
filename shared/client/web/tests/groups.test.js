import { test } from "node:test";
import assert from "node:assert/strict";
import { MAX_TITLE_RUNES } from "../checks.js";
import { TIMING } from "../engine.js";
import { MemoryStore } from "../store.js";
import { seededRandom, settled } from "./clock.js";
import { heldTexts, lostTexts, seqs, setUp, setUpOnline, setUpTabs, texts } from "./world.js";

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

const events = (client, key) => client.messages(key).filter(({ kind }) => kind === "event").map(({ senderId, event }) => ({ by: senderId, ...event }));
const roles = (client, key) => client.members(key)?.map(({ userId, role }) => `${userId} ${role}`);

test("a group is there at once, and gets its id from the server", async (t) => {
  const { clock, alice, bob } = await setUpOnline(t, "alice", "bob");
  const key = alice.createGroup("Trip", ["bob", "carol"]);
  assert.deepEqual(alice.conversations().map(({ title, kind, role, closed, last }) => [title, kind, role, closed, last.state]), [["Trip", "group", "member", null, "sending"]]);
  alice.send(key, "hello"); // the group is not made yet
  await clock.until(() => bob.conversations()[0]?.unread === 1);
  assert.match(alice.currentKey(key), /^group:/);
  await clock.advance(1_000);
  for (const client of [alice, bob]) {
    const { title, kind, memberCount, closed } = client.conversations()[0];
    assert.deepEqual([title, kind, memberCount, closed], ["Trip", "group", 3, null]);
  }
  assert.deepEqual([alice, bob].map((client) => client.conversations()[0].role), ["owner", "member"]);
  assert.deepEqual(events(bob, bob.conversations()[0].key), [{ by: "alice", kind: "members", added: ["alice", "bob", "carol"], owner: "alice", title: "Trip" }]);
  assert.deepEqual(texts(alice, key), ["", "hello"]);
  assert.equal(alice.conversation(key).key, alice.currentKey(key));
});

test("titles are checked before anything is sent", async (t) => {
  const { server, alice } = await setUpOnline(t, "alice");
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
  const { clock, server, alice } = await setUpOnline(t, "alice");
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
  assert.deepEqual(events(bob, id).slice(1), [
    { by: "alice", kind: "members", added: ["dave", "erin"] },
    { by: "alice", kind: "members", member: "bob", role: "admin" },
    { by: "alice", kind: "members", removed: ["erin"] },
    { by: "alice", kind: "title", title: "Journey" },
  ]);
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
  assert.deepEqual(events(bob, id).at(-1), { by: "alice", kind: "members", removed: ["alice"], owner: "bob" });
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
  const { clock, server, alice } = await setUpOnline(t, "alice");
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
  await clock.until(() => alice.messages("to:bob").every(({ seq, lost }) => seq !== null || lost));
  await clock.advance(TIMING.heartbeatMs);
  assert.deepEqual(texts(alice, id), ["old", "new", "from my pocket"]);
  assert.deepEqual(lostTexts(alice, id), ["old"]);
  assert.equal(alice.conversation(id).unread, 1);
  const { messages, outbox } = await store.load();
  assert.deepEqual(messages.map(({ text }) => text), ["new", "from my pocket"]);
  assert.deepEqual(outbox, []);
});

test("a server that began anew is noticed by what its whole list lacks", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  await alice.send("to:bob", "old");
  await clock.advance(1_000);
  const id = alice.currentKey("to:bob");
  server.wipe();
  server.cutAll();
  await clock.advance(TIMING.heartbeatMs);
  const [lost, ...others] = alice.messages("to:bob");
  assert.deepEqual([lost.text, lost.state, others], ["old", "failed", []]);
  alice.discard(lost.clientMsgId);
  assert.deepEqual(alice.conversations(), []);
  assert.deepEqual([alice.currentKey(id), alice.conversation(id).closed], ["to:bob", null], "a conversation of two is made anew with its first message");
  await alice.send(id, "new");
  await clock.until(() => alice.messages("to:bob")[0]?.seq === 1);
  assert.deepEqual(texts(alice, "to:bob"), ["new"]);
});

// Alice's device holds 1 to 10; the server has a backup of 1 to 6.
async function setUpRestored(t, options) {
  const world = setUp(t);
  const { clock, server, online } = world;
  const store = new MemoryStore();
  const alice = await online("alice", { store, ...options });
  const bob = { post: (text) => server.post("bob", { to: "alice" }, text) };
  for (let i = 1; i <= 6; i++) bob.post(`${i}`);
  const backup = server.backup();
  for (let i = 7; i <= 10; i++) bob.post(`${i}`);
  await clock.until(() => texts(alice, "to:bob").length === 10);
  await clock.advance(1_000);
  const id = alice.currentKey("to:bob");
  const same = async () => {
    await clock.until(() => alice.messages(id).filter(({ lost }) => !lost).map(({ messageId }) => messageId).join() === server.entries(id).map(({ messageId }) => messageId).join(), 30_000);
    await clock.advance(1_000);
    const { messages, syncCursor, outbox } = await store.load();
    assert.deepEqual(messages.sort((a, b) => a.seq - b.seq).map(({ messageId }) => messageId), server.entries(id).map(({ messageId }) => messageId));
    assert.equal(syncCursor, server.act("alice", "changes", { syncCursor: 0 }).syncCursor);
    assert.deepEqual(outbox, []);
    assert.deepEqual(lostTexts(alice, id), ["7", "8", "9", "10"], "what only the device still has stays visible");
  };
  return { ...world, store, alice, bob, backup, id, same };
}

const reconnect = (client) => (client.setOffline(true), client.setOffline(false));

test("a restored server: its cursor is below ours", async (t) => {
  const { server, alice, backup, same } = await setUpRestored(t);
  server.restore(backup);
  reconnect(alice);
  await same();
  assert.deepEqual(texts(alice, "to:bob"), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
});

test("a restored server that has gone on: its cursor and its heads have passed ours", async (t) => {
  const { clock, server, alice, bob, backup, same } = await setUpRestored(t);
  alice.setOffline(true);
  await clock.advance(1_000);
  server.restore(backup);
  for (let i = 0; i < 20; i++) bob.post(`anew ${i}`);
  alice.setOffline(false);
  await same();
  assert.deepEqual(texts(alice, "to:bob").slice(5, 11), ["6", "7", "8", "9", "10", "anew 0"]);
});

test("a server that is restored behind an open connection: a push brings another entry than the one held", async (t) => {
  const { server, bob, backup, same, alice } = await setUpRestored(t);
  server.restore(backup);
  bob.post("anew");
  await same();
  assert.deepEqual(texts(alice, "to:bob").slice(5), ["6", "7", "8", "9", "10", "anew"]);
});

test("G3: a server that is restored behind an open connection: what is sent then is neither lost nor doubled", async (t) => {
  const { clock, server, alice, backup, same, id } = await setUpRestored(t);
  server.restore(backup);
  server.pushes = () => 0;
  const shown = [];
  alice.addEventListener("change", () => shown.push(texts(alice, "to:bob").filter((text) => text === "mine").length));
  await alice.send(id, "mine");
  await clock.until(() => server.entries(id).length === 7);
  await same();
  assert.deepEqual(new Set(shown), new Set([1]));
  assert.equal(server.entries(id).length, 7);
});

test("a sync that says that there is less than we hold is not taken for having caught up", async (t) => {
  const { server, alice, backup, same, id, socketOf } = await setUpRestored(t);
  server.restore(backup);
  server.say(socketOf(alice), { type: "notify", updates: [{ conversationId: id, committedMaxSeq: 11 }] });
  await same();
});

test("own messages that a restored server lost stay visible as such, also over a reload, until it has them", async (t) => {
  const { clock, server, online, device } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  const [kept, gone] = [server.group("kept", ["alice", "bob"]), server.group("gone", ["alice", "bob"])];
  const send = async (key, text) => {
    await alice.send(key, text);
    await clock.until(() => alice.messages(key).at(-1).seq !== null);
    await clock.advance(1_000);
  };
  for (const key of ["to:bob", kept]) await send(key, "kept");
  const before = server.backup();
  before.conversations.delete(gone);
  for (const key of ["to:bob", kept, gone]) await send(key, "lost");
  await send("to:carol", "lost, too");
  const id = alice.currentKey("to:bob");
  await alice.recall(id, alice.messages(id).at(-1));
  await send(id, "lost as well");
  server.restore(before);
  server.post("bob", { to: "alice" }, "anew");
  const saidToBeGone = new Set();
  const stop = alice.subscribe(() => alice.conversation(kept).closed && saidToBeGone.add(kept));
  const shown = (client, key) => client.messages(key).map(({ text, state }) => `${text} ${state}`);
  const check = (client) => {
    assert.deepEqual(shown(client, "to:bob"), ["kept sent", "anew null", "lost as well failed"], "what was recalled is not shown again");
    assert.deepEqual(shown(client, kept), ["kept sent", "lost failed"]);
    assert.deepEqual(shown(client, "to:carol"), ["lost, too failed"]);
    assert.deepEqual(shown(client, gone), ["lost failed"]);
    assert.deepEqual([client.conversation(gone).title, client.conversation(gone).closed], ["gone", "unknown"], "what was written there is not");
    assert.equal(client.conversations().length, 4);
  };
  await clock.until(() => shown(alice, "to:carol")[0] === "lost, too failed");
  stop();
  assert.deepEqual([...saidToBeGone], [], "a conversation is not said to be gone before the server was asked");
  await clock.advance(1_000);
  check(alice);
  const { clientMsgId } = alice.messages(kept)[1];
  alice.setOffline(true);
  const reloaded = device("alice", { store });
  await reloaded.start();
  check(reloaded);
  await clock.until(() => reloaded.state === "online");
  server.act("alice", "send", { conversationId: kept, messageType: "text", text: "lost", clientMsgId }); // by another device
  await clock.until(() => shown(reloaded, kept).join() === "kept sent,lost sent");
  assert.equal((await store.load()).outbox.length, 2);
});

test("what may be older than what is loaded anew does not count as lost, and no more than the last is kept", async (t) => {
  const { clock, server, online } = setUp(t);
  const alice = await online("alice", { limits: { late: 10, end: 3, lost: 2 } });
  const backup = server.backup();
  for (const text of ["1", "2", "3"]) await alice.send("to:bob", text);
  for (const text of ["1", "2", "3"]) await alice.send("to:carol", text);
  await clock.until(() => ["to:bob", "to:carol"].flatMap((key) => alice.messages(key)).every(({ seq }) => seq !== null));
  await clock.advance(5_000);
  server.restore(backup);
  for (let i = 1; i <= 20; i++) server.post("carol", { to: "alice" }, `anew ${i}`);
  await clock.until(() => alice.messages("to:carol").at(-1)?.text === "anew 20");
  await clock.advance(5_000);
  assert.deepEqual(texts(alice, "to:carol"), ["anew 18", "anew 19", "anew 20"]);
  assert.deepEqual(texts(alice, "to:bob"), ["3"]);
  assert.deepEqual([...alice.conversations()].map(({ key }) => key), [alice.currentKey("to:carol"), "to:bob"]);
});

test("a large group whose head is below what we hold", async (t) => {
  const { clock, server, online } = setUp(t);
  server.inboxGroupMax = 2;
  const alice = await online("alice");
  const id = server.group("crowd", ["alice", "bob", "carol"]);
  server.post("bob", { to: "alice" }, "so that there is a cursor");
  for (let i = 1; i <= 3; i++) server.post("bob", { conversationId: id }, `${i}`);
  const backup = server.backup();
  server.post("bob", { conversationId: id }, "4");
  await clock.until(() => texts(alice, id).length === 4);
  await clock.advance(1_000);
  server.restore(backup);
  reconnect(alice);
  await clock.until(() => heldTexts(alice, id).length === 3);
  assert.deepEqual(lostTexts(alice, id), ["4"]);
});

test("what others wrote and a restored server lost is shown as such, until it is put aside", async (t) => {
  const { clock, server, alice, bob, backup, store, id, same, device } = await setUpRestored(t);
  server.restore(backup);
  for (let i = 1; i <= 3; i++) bob.post(`anew ${i}`);
  await same();
  const [lost] = alice.messages(id).filter((row) => row.lost);
  assert.deepEqual({ ...lost, time: 0 }, { ...lost, seq: null, senderId: "bob", mine: false, text: "7", state: null, error: null, canEdit: false, canRecall: false, receipt: null, time: 0 });
  assert.equal(alice.conversation(id).unread, server.line("alice", id).unread, "it is not unread");
  assert.deepEqual(alice.messages(id, 4).map(({ text }) => text), ["10", "anew 1", "anew 2", "anew 3"]);

  alice.setOffline(true);
  const reloaded = device("alice", { store });
  await reloaded.start();
  assert.deepEqual(lostTexts(reloaded, id), ["7", "8", "9", "10"], "a reload changes nothing");
  await clock.until(() => reloaded.state === "online");
  server.act("bob", "send", { to: "alice", messageType: "text", text: "7", clientMsgId: lost.clientMsgId });
  await clock.until(() => heldTexts(reloaded, id).at(-1) === "7");
  assert.deepEqual(lostTexts(reloaded, id), ["8", "9", "10"], "who wrote it sent it again");
  reloaded.discardLost(id);
  await clock.advance(1_000);
  assert.deepEqual(lostTexts(reloaded, id), []);
  assert.deepEqual((await store.load()).lost, []);
});

test("what is lost goes with what is cleared, and what is erased", async (t) => {
  const { clock, server, alice, backup, store, id } = await setUpRestored(t);
  const group = server.group("g", ["alice", "bob", "carol"]);
  const before = server.backup();
  for (const user of ["bob", "carol"]) server.post(user, { conversationId: group }, `of ${user}`);
  await clock.until(() => texts(alice, group).length === 2);
  await clock.advance(1_000);
  backup.conversations.set(group, before.conversations.get(group));
  server.restore(backup);
  server.post("bob", { conversationId: group }, "anew");
  reconnect(alice);
  await clock.until(() => lostTexts(alice, id).length === 4);
  assert.deepEqual(lostTexts(alice, group), ["of bob", "of carol"]);
  server.erase("bob");
  await clock.until(() => lostTexts(alice, group).join() === "of carol");
  alice.clear(id);
  await clock.advance(1_000);
  assert.deepEqual(texts(alice, id), []);
  assert.deepEqual((await store.load()).lost.map(({ message }) => message.text), ["of carol"]);
});

// The device gives up nothing before it knows what the server still has.
test("a device that ends while it starts over loses nothing", async (t) => {
  const { clock, server, alice, backup, store, id, device } = await setUpRestored(t);
  await alice.send(id, "mine");
  await clock.until(() => alice.messages(id).at(-1).seq === 11);
  await clock.advance(5_000);
  server.restore(backup);
  server.refuse = ({ action }) => (action === "sync" ? { code: "BUSY", message: "busy", retryable: true } : undefined);
  reconnect(alice);
  await clock.until(() => texts(alice, id).length === 0);
  await clock.advance(1_000);
  alice.setOffline(true);
  assert.deepEqual(texts(alice, id), [], "what is in doubt is not told to be lost");
  const reloaded = device("alice", { store });
  await reloaded.start();
  assert.deepEqual(texts(reloaded, id), []);
  server.refuse = () => undefined;
  await clock.until(() => texts(reloaded, id).length > 0);
  await clock.advance(10_000);
  assert.deepEqual(texts(reloaded, id), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "mine"]);
  assert.deepEqual(lostTexts(reloaded, id), ["7", "8", "9", "10", "mine"]);
});

test("an own message that was answered, and lost before it came back, is shown as lost", async (t) => {
  const { clock, server, alice, bob, backup, id } = await setUpRestored(t);
  server.pushes = () => 0;
  bob.post("missed"); // the answer leaves a gap
  await alice.send(id, "mine");
  await clock.until(() => alice.messages(id).at(-1).state === "sent");
  server.restore(backup);
  reconnect(alice);
  await clock.until(() => alice.messages(id).at(-1)?.error?.code === "LOST");
  assert.equal(alice.messages(id).at(-1).text, "mine");
  assert.equal(await alice.retry(alice.messages(id).at(-1).clientMsgId), alice.messages(id).at(-1).clientMsgId);
  await clock.until(() => server.entries(id).at(-1).text === "mine");
});

test("of what others wrote and the server lost the last is kept", async (t) => {
  const { alice, server, backup, store, clock, id } = await setUpRestored(t, { limits: { lostOfOthers: 2 } });
  server.restore(backup);
  reconnect(alice);
  await clock.until(() => heldTexts(alice, id).length === 6);
  await clock.advance(1_000);
  assert.deepEqual(lostTexts(alice, id), ["9", "10"]);
  server.wipe();
  reconnect(alice);
  await clock.until(() => heldTexts(alice, id).length === 0);
  await clock.advance(1_000);
  assert.deepEqual(lostTexts(alice, "to:bob"), ["9", "10"]);
  assert.equal((await store.load()).lost.length, 2);
});

test("who has a conversation of two open goes on in it, in any tab, when the server has begun anew", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const opened = await tabs(2);
  const id = server.post("bob", { to: "alice" }, "old").conversationId;
  await clock.until(() => opened.every((tab) => texts(tab, id).join() === "old"));
  server.wipe();
  server.cutAll();
  await clock.until(() => opened.every((tab) => lostTexts(tab, id).join() === "old"));
  for (const tab of opened) assert.deepEqual([tab.currentKey(id), tab.conversation(id).closed], ["to:bob", null]);
  await opened[1].send(id, "new");
  await clock.until(() => opened.every((tab) => tab.currentKey(id) === id && heldTexts(tab, id).join() === "new"));
});

test("all tabs show what a restored server lost, also one that opens later", async (t) => {
  const { clock, server, tabs, open } = setUpTabs(t);
  const opened = await tabs(2);
  const id = server.post("bob", { to: "alice" }, "1").conversationId;
  const backup = server.backup();
  const gone = server.group("gone", ["alice", "bob"]);
  for (const address of [{ to: "alice" }, { conversationId: gone }]) server.post("bob", address, "lost");
  await clock.advance(2_000);
  server.restore(backup);
  server.cutAll();
  await clock.advance(10_000);
  opened.push(await open());
  await clock.advance(1_000);
  for (const tab of opened) {
    assert.deepEqual(texts(tab, id), ["1", "lost"]);
    assert.deepEqual(lostTexts(tab, gone), ["lost"]);
    assert.deepEqual([tab.conversations().length, tab.conversation(gone).title, tab.conversation(gone).closed], [2, "gone", "unknown"]);
  }
  opened[1].discardLost(gone);
  await clock.advance(1_000);
  for (const tab of opened) assert.deepEqual([tab.conversations().length, lostTexts(tab, id)], [1, ["lost"]]);
  await opened[0].close();
  await clock.advance(5_000);
  assert.deepEqual([lostTexts(opened[1], id), lostTexts(opened[2], id)], [["lost"], ["lost"]]);
});

// Devices of a crowd of 400, which is told of messages by notify, and a list of when they pulled.
async function setUpCrowd(t) {
  const world = setUp(t);
  const { clock, server, online } = world;
  server.notifyAbove = 200;
  const id = server.group("crowd", Array.from({ length: 400 }, (_, i) => `user ${i}`));
  server.post("user 399", { conversationId: id }, "first");
  const devices = [];
  for (let i = 0; i < 20; i++) devices.push(await online(`user ${i}`, { random: seededRandom(i) }));
  await clock.advance(10_000);
  const pulled = [];
  server.refuse = ({ action }) => void (action === "sync" && pulled.push(clock.now()));
  const caughtUp = () => devices.every((device) => texts(device, id).length === server.entries(id).length);
  return { ...world, id, pulled, caughtUp };
}

test("a crowd's pulls after a notify are spread by its size", async (t) => {
  const { clock, server, id, pulled, caughtUp } = await setUpCrowd(t);
  const start = clock.now();
  server.post("user 399", { conversationId: id }, "second");
  await clock.until(caughtUp);
  const waits = pulled.map((at) => at - start - TIMING.gapWaitMs);
  const spread = 400 * TIMING.memberWaitMs;
  assert.equal(waits.length, 20);
  assert.ok(Math.min(...waits) >= 0 && Math.max(...waits) <= spread + 50, `${waits}`);
  for (const part of [0, 1, 2, 3]) assert.ok(waits.some((wait) => Math.floor((4 * wait) / spread) === part), `${waits}`);
});

test("notifies that follow each other do not make a device of a crowd pull earlier or more often", async (t) => {
  const { clock, server, id, pulled, caughtUp } = await setUpCrowd(t);
  for (let i = 0; i < 100; i++) {
    server.post("user 399", { conversationId: id }, `${i}`);
    await clock.advance(100);
  }
  await clock.until(caughtUp);
  const perDevice = pulled.length / 20;
  assert.ok(perDevice > 12 && perDevice < 18, `${perDevice} pulls of each in ten seconds`);
});
