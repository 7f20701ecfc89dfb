import { test } from "node:test";
import assert from "node:assert/strict";
import { MemoryStore } from "../store.js";
import { setUp, setUpTabs } from "./world.js";

const busy = ({ action }) => (action === "history" ? { code: "BUSY", message: "not now", retryable: true } : undefined);
// What is stored, and what the server has, in what a recall or an erasure changes.
const states = (messages) => messages.map(({ seq, status, version, senderDeviceId = null }) => [seq, status, version, senderDeviceId]).sort(([a], [b]) => a - b);
const saved = async (store) => JSON.stringify(await store.load());

// A group of alice's from which she removes bob, and to which she adds him again. It has `count` texts.
function setUpAbsence(t, { count = 25, world = setUp(t) } = {}) {
  const { clock, server } = world;
  const id = server.group("g", ["alice", "bob", "carol"]);
  const post = (text, senderId = "alice") => server.post(senderId, { conversationId: id }, text);
  const posted = Array.from({ length: count }, (_, i) => post(`text ${i + 1}`, i === 9 ? "carol" : "alice"));
  const change = (action, fields) => server.act("alice", action, { conversationId: id, ...fields });
  return {
    ...world,
    id,
    post,
    remove: () => change("removeMembers", { members: ["bob"] }),
    add: () => change("addMembers", { members: ["bob"] }),
    recall: (...numbers) => numbers.forEach((n) => change("recall", { seq: n, messageId: (posted[n - 1] ?? server.entries(id)[n - 1]).messageId })),
    edit: (n, version, text) => change("edit", { seq: n, messageId: posted[n - 1].messageId, version, text }),
    idle: () => clock.advance(5_000),
  };
}

// What a device shows of a group, and what the server has for its user there.
const shown = (client, id) => client.messages(id, 1_000).map(({ seq, text, recalled }) => [seq, recalled ? "recalled" : text]);
const wanted = (server, userId, id) =>
  server
    .visible(userId, id)
    .filter(({ event }) => !["recall", "edit", "erase"].includes(event?.kind))
    .map(({ seq, text, status }) => [seq, status === "recalled" ? "recalled" : (text ?? "")]);

// Who was away hears of no recall and no erasure of that time, for they are not for it.
for (const [what, meanwhile] of Object.entries({
  "a recall": ({ remove, recall, add }) => {
    remove();
    recall(1, 12, 25);
    add();
  },
  "of what was edited before, and edited meanwhile": ({ edit, remove, recall, add }) => {
    edit(2, 1, "edited before");
    remove();
    edit(2, 2, "edited meanwhile");
    edit(3, 1, "edited meanwhile");
    recall(2);
    add();
    recall(3);
  },
  "an erasure": ({ remove, add, server }) => {
    remove();
    server.erase("carol");
    add();
  },
  "away twice": ({ remove, recall, add, post }) => {
    remove();
    recall(3);
    add();
    for (let i = 0; i < 15; i++) post("between");
    const { seq } = post("recalled later");
    remove();
    recall(4, seq);
    add();
  },
  "removed again, and still away": ({ remove, recall, add }) => {
    remove();
    recall(3);
    add();
    remove();
  },
})) {
  test(`G5: who comes back has what a new device has: ${what}`, async (t) => {
    const world = setUpAbsence(t);
    const { server, online, id, idle } = world;
    const limits = { pull: 10 };
    const stores = [new MemoryStore(), new MemoryStore(), new MemoryStore()];
    const devices = [];
    for (const [i, store] of stores.entries()) devices.push(await online("bob", { deviceId: `web-${i}`, store, limits }));
    const [live, offline, cut] = devices;
    offline.setOffline(true);
    meanwhile(world);
    cut.setOffline(true);
    await idle();
    for (const client of [offline, cut]) client.setOffline(false);
    await idle();
    const fresh = await online("bob", { deviceId: "web-4", limits });
    await idle();
    for (const [name, client] of Object.entries({ live, offline, cut, fresh })) {
      assert.deepEqual(shown(client, id), wanted(server, "bob", id), name);
    }
    for (const store of stores) assert.deepEqual(states((await store.load()).messages), states(server.visible("bob", id)));
  });
}

test("G5: a device that ends while it reads again goes on from there, the newest first", async (t) => {
  const { clock, server, device, online, id, remove, recall, add, idle } = setUpAbsence(t, { count: 40 });
  const store = new MemoryStore();
  const options = { store, limits: { pull: 10 } };
  const first = await online("bob", options);
  first.setOffline(true);
  remove();
  recall(1, 40);
  add();
  let pages = 0;
  server.answer = ({ action }) => (action === "history" && ++pages > 2 ? "lose" : undefined);
  const second = device("bob", options);
  await second.start();
  await idle();
  assert.deepEqual([shown(second, id)[0][1], shown(second, id)[39][1]], ["text 1", "recalled"]);
  second.setOffline(true);
  server.answer = () => undefined;
  const asked = server.count("history");
  const third = await online("bob", options);
  await clock.until(() => shown(third, id)[0][1] === "recalled");
  await idle();
  assert.deepEqual(shown(third, id), wanted(server, "bob", id));
  assert.equal(server.count("history") - asked, 3, "of five pages");
  assert.doesNotMatch(await saved(store), /"text (1|40)"/);
});

test("G5: a follower shows it, and goes on with it when it leads", async (t) => {
  const world = setUpTabs(t);
  const { server, clock, tabs } = world;
  const id = server.group("g", ["carol", "alice"]);
  const posted = ["one", "two", "three"].map((text) => server.post("carol", { conversationId: id }, text));
  const [leader, follower] = await tabs(2);
  await clock.until(() => shown(follower, id).length === 3);
  const change = (action, fields) => server.act("carol", action, { conversationId: id, ...fields });
  server.refuse = busy;
  change("removeMembers", { members: ["alice"] });
  change("recall", { seq: 2, messageId: posted[1].messageId });
  change("addMembers", { members: ["alice"] });
  await clock.advance(5_000);
  assert.equal(shown(follower, id)[1][1], "two");
  await leader.close();
  server.refuse = () => undefined;
  await clock.until(() => follower.leads && shown(follower, id)[1][1] === "recalled");
});

for (const [what, later] of Object.entries({
  recalls: ({ recall }) => recall(2, 3),
  "an erasure": ({ server }) => server.erase("alice"),
})) {
  test(`G5: a page that the server read before an event does not undo it: ${what}`, async (t) => {
    const world = setUpAbsence(t);
    const { server, online, id, edit, remove, recall, add, idle } = world;
    const store = new MemoryStore();
    const bob = await online("bob", { store });
    edit(2, 1, "edited");
    remove();
    await idle();
    const old = server.visible("bob", id);
    recall(1);
    server.refuse = busy;
    add();
    later(world);
    await idle();
    server.refuse = () => undefined;
    const asked = server.count("history");
    server.answer = (frame) => {
      if (frame.action !== "history") return undefined;
      const result = { messages: [...server.visible("bob", id).slice(0, 1), ...old.slice(1)], nextBeforeSeq: 1, committedMaxSeq: 30, hasMore: false };
      return { type: "reply", id: frame.id, action: "history", result };
    };
    await idle();
    assert.ok(server.count("history") > asked);
    assert.deepEqual(shown(bob, id), wanted(server, "bob", id));
    assert.deepEqual(states((await store.load()).messages), states(server.visible("bob", id)));
  });
}

test("G5: an earlier page that is from before the absence is not taken", async (t) => {
  const { clock, server, online, id, remove, recall, add, idle } = setUpAbsence(t);
  const bob = await online("bob", { limits: { late: 6, end: 3 } });
  server.answer = ({ action }) => {
    if (action === "history") server.latency = () => 3_000;
    queueMicrotask(() => (server.latency = () => 5));
  };
  let loaded = 0;
  const load = () => void bob.loadEarlier(id).then(() => loaded++);
  load();
  await clock.until(() => server.count("history") === 1);
  server.answer = () => undefined;
  remove();
  recall(1, 24);
  add();
  await clock.advance(2_000);
  assert.equal(shown(bob, id)[1][1], "recalled", "read again by now");
  await clock.until(() => loaded === 1);
  load();
  await clock.until(() => loaded === 2);
  assert.deepEqual(shown(bob, id), wanted(server, "bob", id));
});

test("who was not away reads nothing again", async (t) => {
  const { server, online, id, post, remove, recall, add, idle } = setUpAbsence(t);
  const bob = await online("bob");
  recall(1, 2);
  remove();
  add(); // by the very next entry
  post("more");
  await idle();
  bob.setOffline(true);
  server.act("bob", "clear", { conversationId: id, throughSeq: 26 });
  bob.setOffline(false);
  await idle();
  remove();
  server.act("bob", "clear", { conversationId: id, throughSeq: 31 });
  post("meanwhile");
  add();
  await idle();
  assert.deepEqual(shown(bob, id), wanted(server, "bob", id));
  assert.equal(server.count("history"), 0);
});

test("G10: a group that is read again holds up no other conversation, nor what follows in it", async (t) => {
  const { clock, server, device, online } = setUp(t);
  const groups = Array.from({ length: 6 }, (_, i) => server.group(`g${i}`, ["alice", "bob"]));
  const store = new MemoryStore();
  const first = await online("bob", { store });
  first.setOffline(true);
  for (const conversationId of groups) {
    server.act("alice", "removeMembers", { conversationId, members: ["bob"] });
    server.post("alice", { conversationId }, "meanwhile");
    server.act("alice", "addMembers", { conversationId, members: ["bob"] });
    server.post("alice", { conversationId }, "last");
  }
  const single = server.post("alice", { to: "bob" }, "last").conversationId;
  server.answer = ({ action }) => (action === "history" ? "lose" : undefined);
  const bob = device("bob", { store });
  await bob.start();
  await clock.advance(1_000);
  assert.deepEqual([...groups, single].map((id) => bob.messages(id, 100).at(-1)?.text), Array(7).fill("last"));
  assert.deepEqual([server.count("history"), server.count("sync")], [1, 13], "the others wait for it, and ask for nothing twice");
  const late = server.group("late", ["alice", "bob"]);
  server.post("alice", { conversationId: late }, "hi");
  await clock.advance(2_000);
  assert.equal(bob.conversation(late).title, "late", "nor what is told of others");
  server.answer = () => undefined;
  await clock.advance(60_000);
  for (const id of groups) assert.deepEqual(shown(bob, id), wanted(server, "bob", id));
});

// A store that makes some more writes, and does not return from the next one: the device is dead.
class MortalStore extends MemoryStore {
  constructor(store, writes) {
    super();
    this.claim = (atLeast) => store.claim(atLeast);
    this.load = () => store.load();
    this.commit = (change, term) => (writes-- > 0 ? store.commit(change, term) : new Promise(() => {}));
  }
}

test("G5: wherever a device is killed that comes back from absences, it has what a new one has", async (t) => {
  for (let writes = 0; writes < 30; writes++) {
    const world = setUpAbsence(t);
    const { server, device, online, id, post, remove, recall, add, edit, idle } = world;
    const store = new MemoryStore();
    const limits = { pull: 10 };
    (await online("bob", { store, limits })).setOffline(true);
    edit(3, 1, "edited");
    remove();
    recall(2, 20);
    edit(4, 1, "edited meanwhile");
    server.erase("carol");
    add();
    for (let i = 0; i < 15; i++) post("between");
    remove();
    recall(5, 38);
    add();
    recall(6);
    const killed = device("bob", { store: new MortalStore(store, writes), limits });
    void killed.start().then(() => killed.send(id, "mine"));
    await idle();
    killed.setOffline(true);
    const bob = await online("bob", { store, limits });
    await idle();
    assert.deepEqual(states((await store.load()).messages), states(server.visible("bob", id)), `killed after ${writes} writes`);
    assert.deepEqual(shown(bob, id), wanted(server, "bob", id));
  }
});
