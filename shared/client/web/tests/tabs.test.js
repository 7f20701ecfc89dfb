import { test } from "node:test";
import assert from "node:assert/strict";
import { CHANNEL_VERSION } from "../channel.js";
import { MemoryStore } from "../store.js";
import { SharedStore } from "./browser.js";
import { seededRandom } from "./clock.js";
import { seqs, setUpTabs, texts } from "./world.js";

const bob = (client) => client.keyFor("bob");
const inAll = (clients, what) => clients.every(what);
const committed = (server) => [...server.conversations.values()].flatMap(({ entries }) => entries);

test("tabs of one device share one connection, and show the same", async (t) => {
  const { clock, server, tabs, alone } = setUpTabs(t);
  const three = await tabs(3);
  assert.deepEqual(three.map(({ leads }) => leads), [true, false, false]);
  assert.equal(server.sockets.length, 1);
  const other = await alone("bob");
  await other.send(other.keyFor("alice"), "one");
  await three[1].send(bob(three[1]), "two");
  await three[2].send(bob(three[2]), "three");
  await three[0].send(bob(three[0]), "four");
  await clock.until(() => inAll([...three, other], (client) => client.conversations()[0]?.last?.seq === 4));
  await clock.advance(5_000); // until all know that all is delivered
  for (const client of three) {
    const key = bob(client);
    assert.deepEqual(seqs(client, key), [1, 2, 3, 4]);
    assert.deepEqual(client.messages(key), three[0].messages(key));
    assert.deepEqual(client.conversations(), three[0].conversations());
  }
  assert.equal(server.count("send"), 4);
});

test("what a follower sends is shown at once, stored before it is sent, and committed once", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [leader, follower] = await tabs(2);
  const sending = follower.send(bob(follower), "hi");
  assert.deepEqual(follower.messages(bob(follower)).map(({ text, state }) => [text, state]), [["hi", "sending"]]);
  await sending;
  await clock.until(() => inAll([leader, follower], (client) => client.messages(bob(client))[0]?.seq === 1));
  await clock.advance(60_000);
  assert.equal(committed(server).length, 1);
  assert.equal(server.count("send"), 1);
  assert.deepEqual(texts(follower, bob(follower)), ["hi"]);
});

for (const how of ["killed", "closed", "frozen", "put aside", "stalled"]) {
  test(`a leader that is ${how} while a follower sends: the next one leads, nothing is lost or doubled`, async (t) => {
    const { clock, server, tabs } = setUpTabs(t);
    const [leader, second, third] = await tabs(3);
    const ends = {
      killed: () => leader.tab.kill(),
      closed: () => leader.close(),
      frozen: () => leader.tab.freeze(),
      "put aside": () => leader.tab.putAside(),
      stalled: () => leader.tab.stall(),
    };
    // One before the leader takes it, one on its way to the server, one whose answer is on its way.
    await second.send(bob(second), "a");
    for (const text of ["b", "c", "d"]) {
      await third.send(bob(third), text);
      await clock.advance(3);
    }
    ends[how]();
    await second.send(bob(second), "e");
    await clock.until(() => inAll([second, third], (client) => client.state === "online" && client.messages(bob(client)).length === 5 && client.messages(bob(client)).every(({ seq }) => seq !== null)));
    assert.deepEqual([second.leads, third.leads].filter(Boolean).length, 1);
    assert.deepEqual(committed(server).map(({ text }) => text).sort(), ["a", "b", "c", "d", "e"]);
    assert.deepEqual(texts(second, bob(second)), texts(third, bob(third)));
    assert.equal(server.sockets.length, 1);
  });
}

// The server is faster than the leader's disk: it has the message before the leader has answered the tab.
test("what is sent in any tab is shown once and without a break, however slow the leader's store is", async (t) => {
  for (let seed = 1; seed <= 10; seed++) {
    const random = seededRandom(seed);
    const store = new SharedStore();
    const { clock, server, tabs, alone } = setUpTabs(t, { store });
    const three = await tabs(3);
    const other = await alone("bob");
    const commit = store.commit.bind(store);
    store.commit = async (change, term) => {
      if (term !== undefined) await new Promise((resolve) => clock.setTimeout(resolve, random() * 60));
      return commit(change, term);
    };
    const sent = [];
    for (const client of three) {
      let shown = [];
      client.addEventListener("change", () => {
        const now = texts(client, bob(client));
        assert.deepEqual(shown.filter((text) => !now.includes(text)), [], `seed ${seed}: it was shown already`);
        assert.equal(new Set(now).size, now.length, `seed ${seed}: it is shown twice`);
        shown = now;
      });
    }
    for (let round = 0; round < 4; round++) {
      for (const client of [...three, other]) {
        const text = `${seed} ${sent.length}`;
        sent.push(text);
        void client.send(client.keyFor(client === other ? "alice" : "bob"), text);
        await clock.advance(random() * 10);
      }
    }
    await clock.until(() => committed(server).length === sent.length);
    await clock.advance(20_000);
    for (const client of three) {
      const rows = client.messages(bob(client));
      assert.deepEqual(rows.map(({ seq }) => seq), sent.map((_, i) => i + 1), `seed ${seed}, ${client.leads ? "the leader" : "a follower"}`);
    }
  }
});

test("a tab that comes back follows, and catches up", async (t) => {
  for (const [away, back] of [["freeze", "thaw"], ["putAside", "comeBack"], ["stall", "wake"]]) {
    const { clock, server, tabs } = setUpTabs(t);
    const [first, second] = await tabs(2);
    first.tab[away]();
    await second.send(bob(second), "meanwhile");
    await clock.until(() => second.leads && seqs(second, bob(second))[0] === 1);
    first.tab[back]();
    await clock.until(() => seqs(first, bob(first))[0] === 1 && first.state === "online");
    await clock.advance(60_000);
    assert.deepEqual([first.leads, second.leads], [false, true], away);
    assert.equal(server.sockets.length, 1, away);
    await first.send(bob(first), "again");
    await clock.until(() => inAll([first, second], (client) => seqs(client, bob(client))[1] === 2));
  }
});

test("what a leader that was robbed still wants to write is refused", async (t) => {
  const { clock, tabs, alone } = setUpTabs(t);
  const [first, second] = await tabs(2);
  const other = await alone("bob");
  first.tab.stall();
  for (const text of ["one", "two"]) await other.send(other.keyFor("alice"), text); // wait in its socket's queue
  await clock.until(() => second.leads && seqs(second, bob(second)).length === 2);
  await other.edit(other.keyFor("alice"), other.messages(other.keyFor("alice"))[0], "one, edited");
  await clock.until(() => texts(second, bob(second))[0] === "one, edited");
  first.tab.wake(); // takes the old push in, as if it still led
  await clock.advance(30_000);
  assert.deepEqual(texts(first, bob(first)), ["one, edited", "two"]);
  await second.close();
  await clock.until(() => first.leads && first.state === "online");
  assert.deepEqual(texts(first, bob(first)), ["one, edited", "two"], "so it is in the store");
});

test("a leader that stalls while it connects does not throw out the next one when it wakes", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [first, second] = await tabs(2);
  server.cutAll();
  await clock.advance(1); // it waits to dial again
  first.tab.stall();
  await clock.until(() => second.leads && second.state === "online");
  const [socket] = server.sockets;
  first.tab.wake();
  await clock.advance(30_000);
  assert.deepEqual(server.sockets, [socket]);
  assert.deepEqual([first.leads, second.leads, first.state, second.state], [false, true, "online", "online"]);
});

test("a hidden tab does not take the lead by force", async (t) => {
  const { clock, tabs } = setUpTabs(t);
  const [first, second] = await tabs(2);
  second.tab.visible = false;
  first.tab.stall();
  await clock.advance(120_000);
  assert.equal(second.leads, false);
  second.tab.visible = true;
  await clock.until(() => second.leads && second.state === "online");
});

test("what only the leader can do has an answer, or ends in time", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [first, second] = await tabs(2, { limits: { pull: 2, late: 3, end: 2 } });
  first.setOffline(true);
  await clock.advance(100);
  for (let i = 0; i < 6; i++) server.post("bob", { to: "alice" }, `m${i}`);
  second.setOffline(false);
  await clock.until(() => seqs(second, bob(second)).length === 2);
  const loading = second.loadEarlier(bob(second));
  await clock.advance(100);
  await loading;
  assert.deepEqual(texts(second, bob(second)), ["m2", "m3", "m4", "m5"], "the page is there when the promise resolves");
  assert.deepEqual(texts(first, bob(first)), ["m2", "m3", "m4", "m5"]);

  const group = second.createGroup("g", ["bob"]);
  await clock.until(() => second.currentKey(group) !== group);
  const asking = assert.rejects(second.receipts(group, 99), { name: "RequestError", code: "NOT_FOUND", retryable: false });
  await clock.advance(100);
  await asking;

  second.tab.visible = false;
  first.tab.stall();
  const waiting = assert.rejects(second.receipts(group, 1), { code: "TIMEOUT", retryable: true });
  await clock.advance(16_000);
  await waiting;
});

test("a call that the leader took with it is done by the next one", async (t) => {
  const { clock, tabs } = setUpTabs(t);
  const [first, second] = await tabs(2);
  await first.send(bob(first), "hi");
  await clock.until(() => seqs(second, bob(second))[0] === 1);
  const asking = second.receipts(bob(second), 1);
  await clock.advance(2);
  first.tab.kill();
  await clock.until(() => second.leads && second.state === "online");
  let answer = null;
  asking.then((receipts) => (answer = receipts));
  await clock.until(() => answer !== null);
  assert.deepEqual(answer, { delivered: ["alice"], read: ["alice"] });
});

test("a follower's call is done by the next leader, and keys and groups that it made stay good", async (t) => {
  const { clock, tabs } = setUpTabs(t);
  const [first, second, third] = await tabs(3);
  const key = third.createGroup("g", ["bob"]);
  await clock.until(() => inAll([first, second, third], (client) => client.currentKey(key) !== key && client.messages(key)[0]?.seq === 1));
  let answer = null;
  third.receipts(key, 1).then((receipts) => (answer = receipts));
  await clock.advance(2); // the first has asked the server
  first.tab.kill();
  await clock.until(() => answer !== null, 14_000);
  assert.deepEqual(answer, { delivered: ["alice"], read: ["alice"] });
  assert.equal(second.leads, true);
  for (const client of [second, third]) assert.equal(client.currentKey(key), client.conversations()[0].key);
});

test("what a tab was told to be stored is sent, even if all tabs crash", async (t) => {
  const { clock, server, tabs, open } = setUpTabs(t);
  const [first, second] = await tabs(2);
  first.tab.stall(); // it does not hear of that
  await second.send(bob(second), "kept");
  first.tab.kill();
  second.tab.kill();
  const third = await open();
  await clock.until(() => seqs(third, bob(third))[0] === 1);
  assert.equal(committed(server).length, 1);
});

test("a tab that is robbed while it begins to lead does not", async (t) => {
  const store = new SharedStore();
  const { clock, server, tabs } = setUpTabs(t, { store });
  const [first, second, third] = await tabs(3);
  const load = store.load.bind(store);
  let go = null;
  store.load = () => new Promise((resolve) => (go = () => resolve(load())));
  third.tab.visible = false;
  first.tab.kill();
  await clock.until(() => go !== null);
  const late = go;
  store.load = load;
  third.tab.visible = true;
  await clock.until(() => third.leads && third.state === "online");
  late();
  await clock.advance(30_000);
  assert.deepEqual([second.leads, third.leads, second.state, third.state], [false, true, "online", "online"]);
  assert.equal(server.sockets.length, 1);
});

test("reading, clearing, renaming and discarding in a follower", async (t) => {
  const { clock, server, tabs, alone } = setUpTabs(t);
  const [first, second] = await tabs(2);
  const other = await alone("bob");
  await other.send(other.keyFor("alice"), "read me");
  await clock.until(() => inAll([first, second], (client) => client.conversations()[0]?.unread === 1));
  second.markRead(bob(second));
  assert.equal(second.conversation(bob(second)).unread, 0, "at once here");
  await clock.until(() => first.conversation(bob(first)).unread === 0 && server.conversations.get(bob(first)).lines.get("alice").readSeq === 1);
  second.clear(bob(second));
  await clock.until(() => inAll([first, second], (client) => client.messages(bob(client)).length === 0));

  const key = second.createGroup("old", ["bob"]);
  await second.setTitle(key, "new");
  await clock.until(() => inAll([first, second], (client) => client.conversation(key).title === "new" && client.messages(key).length === 2));
  second.show(key);
  await clock.until(() => second.members(key)?.length === 2 && first.members(key)?.length === 2);

  server.refuse = (frame) => (frame.action === "send" ? { code: "FORBIDDEN", message: "no", retryable: false } : undefined);
  const id = await second.send(key, "refused");
  await clock.until(() => inAll([first, second], (client) => client.messages(key).at(-1).state === "failed"));
  second.discard(id);
  await clock.until(() => inAll([first, second], (client) => client.messages(key).every(({ state }) => state !== "failed")));
});

test("a conversation is looked at as long as one tab shows it, also after the leader", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [first, second, third] = await tabs(3);
  const id = server.group("g", ["bob", "alice"]);
  server.post("bob", { conversationId: id }, "hi");
  await clock.until(() => second.conversations().length === 1);
  const asked = () => server.count("members");
  second.show(id);
  await clock.until(() => inAll([first, second, third], (client) => client.members(id)?.length === 2));
  first.tab.kill();
  await clock.until(() => second.leads && second.state === "online");
  await clock.advance(1_000);
  const before = asked();
  server.act("bob", "addMembers", { conversationId: id, members: ["carol"] });
  await clock.until(() => third.members(id)?.length === 3);
  assert.equal(asked(), before + 1);
  second.tab.kill();
  await clock.until(() => third.leads && third.state === "online");
  await clock.advance(1_000);
  const after = asked();
  server.act("bob", "addMembers", { conversationId: id, members: ["dave"] });
  await clock.advance(10_000);
  assert.equal(asked(), after, "nobody looks any more");
});

test("a follower that is killed is not looked for any more", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [, second] = await tabs(2);
  const id = server.group("g", ["bob", "alice"]);
  server.post("bob", { conversationId: id }, "hi");
  second.show(id);
  await clock.until(() => second.members(id)?.length === 2);
  second.tab.kill();
  await clock.advance(10);
  const before = server.count("members");
  server.act("bob", "addMembers", { conversationId: id, members: ["carol"] });
  await clock.advance(10_000);
  assert.equal(server.count("members"), before);
});

test("closing one tab ends it alone", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [first, second, third] = await tabs(3);
  await second.close();
  await clock.advance(1_000);
  assert.deepEqual([second.state, second.detail], ["offline", "closed"]);
  await assert.rejects(second.send(bob(second), "late"), { code: "CLOSED" });
  assert.deepEqual([first.state, third.state], ["online", "online"]);
  await first.close();
  await clock.until(() => third.leads && third.state === "online");
  await third.send(bob(third), "still here");
  await clock.until(() => seqs(third, bob(third))[0] === 1);
  assert.equal(server.sockets.length, 1);
});

test("offline is of the device: all tabs are, and the next leader stays so", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [first, second, third] = await tabs(3);
  third.setOffline(true);
  await clock.until(() => inAll([first, second, third], (client) => client.state === "offline"));
  await second.send(bob(second), "later");
  first.tab.kill();
  await clock.advance(60_000);
  assert.equal(second.leads, true);
  assert.deepEqual([second.state, third.state, server.sockets.length], ["offline", "offline", 0]);
  third.setOffline(false);
  await clock.until(() => inAll([second, third], (client) => client.state === "online" && seqs(client, bob(client))[0] === 1));
});

test("two devices, two users and two servers do not mix", async (t) => {
  const { clock, server, tabs, open } = setUpTabs(t);
  const [first] = await tabs(1);
  const others = [
    await open({ deviceId: "web-2", store: new MemoryStore() }),
    await open({ userId: "alic", deviceId: "e/web", store: new MemoryStore() }),
    await open({ url: "ws://127.0.0.1:1/other", store: new MemoryStore(), deviceId: "web-3" }),
  ];
  await clock.until(() => inAll(others, (client) => client.state === "online"));
  assert.equal(inAll([first, ...others], (client) => client.leads), true);
  assert.equal(server.sockets.length, 4);
});

test("no tab of a new device says that a conversation is gone before the server was asked", async (t) => {
  const { clock, server, open } = setUpTabs(t);
  server.admit = () => false;
  const tabs = [await open(), await open()];
  const closed = () => tabs.map((tab) => tab.conversation("group:gone").closed);
  assert.deepEqual(closed(), [null, null]);
  server.admit = () => true;
  tabs[0].retryNow();
  await clock.until(() => tabs.every(({ state }) => state === "online"));
  await clock.until(() => closed().every((why) => why === "unknown"));
});

test("without shared storage the tabs share all the same, and the next leader knows what the last one did", async (t) => {
  const { clock, server, open } = setUpTabs(t);
  const first = await open({ store: new MemoryStore() });
  const second = await open({ store: new MemoryStore() });
  await clock.until(() => second.state === "online");
  await second.send(bob(second), "one");
  await clock.until(() => seqs(second, bob(second))[0] === 1);
  await clock.advance(1_000);
  first.setOffline(true);
  await clock.until(() => second.state === "offline");
  await first.send(bob(first), "two");
  await clock.until(() => texts(second, bob(second)).length === 2);
  first.tab.kill();
  await clock.advance(1_000);
  const syncs = server.count("sync");
  second.setOffline(false);
  await clock.until(() => seqs(second, bob(second)).every((seq) => seq !== null));
  assert.deepEqual(texts(second, bob(second)), ["one", "two"]);
  assert.equal(server.asked("sync").slice(syncs).every(({ afterSeq }) => afterSeq >= 1), true, "it does not begin anew");
});

test("what is stored is shown while the leader does not answer", async (t) => {
  const { clock, tabs, open } = setUpTabs(t);
  const [first] = await tabs(1);
  await first.send(bob(first), "kept");
  await clock.until(() => seqs(first, bob(first))[0] === 1);
  await clock.advance(100);
  first.tab.stall();
  const second = await open();
  assert.equal(second.leads, false);
  assert.deepEqual(texts(second, bob(second)), ["kept"]);
  await second.send(bob(second), "more");
  assert.deepEqual(texts(second, bob(second)), ["kept", "more"]);
  await clock.until(() => second.leads && seqs(second, bob(second)).join() === "1,2");
});

test("messages that make no sense, come late or from who led before are ignored", async (t) => {
  const { clock, browser, tabs } = setUpTabs(t);
  const [first, second] = await tabs(2);
  await first.send(bob(first), "fine");
  await clock.until(() => seqs(second, bob(second))[0] === 1);
  const stranger = browser.newTab(class {}).tabs.channel([...browser.ports][0].name);
  const from = "stranger";
  const v = CHANNEL_VERSION;
  const bad = [
    null, 5, "hello", [], {}, { v }, { v: "1", type: "lead", from, term: 9e15 }, { v, from, type: "unknown" }, { v, from: 7, type: "lead", term: 9e15 },
    { v, from, type: "call", id: 1, method: "constructor", args: [] }, { v, from, type: "call", id: 2, method: "accept" }, { v, from, type: "call" },
    { v, from, type: "delta", term: 1, n: 1, delta: { status: { state: "offline" } } }, { v, from, type: "picture", term: 1, n: 1, picture: {} },
    { v, from, type: "answer", term: 1, id: 1, result: "wrong" }, { v, from, type: "lead" }, { v, from, type: "lead", term: "9" }, { v, from, type: "hello", key: 7 },
  ];
  for (const message of bad) stranger.postMessage(message);
  await clock.advance(10_000);
  assert.deepEqual([first.leads, second.leads], [true, false]);
  assert.deepEqual([first.state, second.state], ["online", "online"]);
  await second.send(bob(second), "still");
  await clock.until(() => inAll([first, second], (client) => texts(client, bob(client)).join() === "fine,still" && seqs(client, bob(client))[1] === 2));
});

test("a tab of an older version gives way to a newer one, and says so", async (t) => {
  const { clock, server, browser, tabs } = setUpTabs(t);
  const [first, second] = await tabs(2);
  const newer = browser.newTab(class {}).tabs.channel([...browser.ports][0].name);
  newer.postMessage({ v: CHANNEL_VERSION + 1, from: "new", whatever: true });
  await clock.advance(100);
  for (const client of [first, second]) {
    assert.deepEqual([client.state, client.detail, client.leads], ["offline", "outdated", false]);
    await assert.rejects(client.send(bob(client), "hi"), { code: "OUTDATED", retryable: false });
  }
  assert.equal(server.sockets.length, 0, "the newer one connects");
});

test("a tab of a newer version makes older ones aware of it", async (t) => {
  const { clock, browser, tabs } = setUpTabs(t);
  await tabs(1);
  const older = browser.newTab(class {}).tabs.channel([...browser.ports][0].name);
  const heard = [];
  older.onmessage = ({ data }) => heard.push(data.v);
  older.postMessage({ v: CHANNEL_VERSION - 1, from: "old", type: "hello" });
  await clock.advance(100);
  assert.deepEqual(heard, [CHANNEL_VERSION]);
});

test("without locks each tab is on its own: the newer one has the device, the older one says so and can take it back", async (t) => {
  const { clock, server, open } = setUpTabs(t);
  const first = await open({ tabs: null });
  await clock.until(() => first.state === "online");
  const second = await open({ tabs: null });
  await clock.until(() => second.state === "online");
  server.post("bob", { to: "alice" }, "hi");
  await clock.until(() => first.state === "offline" && seqs(second, bob(second))[0] === 1);
  assert.equal(first.detail, "replaced");
  await first.send(bob(first), "from the older");
  await clock.advance(60_000);
  assert.equal(server.count("send"), 0, "it is kept");
  first.setOffline(false);
  await clock.until(() => first.state === "online" && seqs(first, bob(first)).join() === "1,2");
  await clock.advance(1_000);
  assert.equal(second.detail, "replaced");
  assert.equal(committed(server).length, 2);
});

test("without locks, one that waits to connect does not throw out a newer one", async (t) => {
  const { clock, server, open } = setUpTabs(t);
  const first = await open({ tabs: null, timing: { backoffBaseMs: 60_000, backoffCapMs: 60_000 } });
  await clock.until(() => first.state === "online");
  await clock.advance(10_000);
  server.admit = () => false;
  server.cutAll();
  await clock.advance(1_000);
  assert.equal(first.state, "connecting");
  server.admit = () => true;
  const second = await open({ tabs: null });
  await clock.until(() => second.state === "online");
  await clock.advance(120_000);
  assert.deepEqual([first.state, first.detail, second.state], ["offline", "replaced", "online"]);
});

test("where the browser refuses the locks, a tab is on its own", async (t) => {
  const { clock, open, browser } = setUpTabs(t);
  const tab = browser.newTab(class {});
  const refused = { ...tab.tabs, locks: { request: () => Promise.reject(new DOMException("no", "SecurityError")) } };
  const client = await open({ tabs: refused });
  await clock.until(() => client.state === "online");
  assert.equal(client.leads, true);
});

test("the token is asked for in the tab that leads", async (t) => {
  const { clock, open } = setUpTabs(t);
  const asked = [];
  const first = await open({ token: () => (asked.push("first"), "alice") });
  const second = await open({ token: () => (asked.push("second"), "alice") });
  await clock.until(() => second.state === "online");
  assert.deepEqual(asked, ["first"]);
  first.tab.kill();
  await clock.until(() => second.leads && second.state === "online");
  assert.deepEqual(asked, ["first", "second"]);
});

test("events reach all tabs", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const three = await tabs(3);
  const changes = three.map(() => 0);
  three.forEach((client, i) => client.addEventListener("change", () => changes[i]++));
  server.post("bob", { to: "alice" }, "hi");
  await clock.until(() => inAll(three, (client) => seqs(client, bob(client))[0] === 1));
  assert.equal(changes.every((count) => count > 0), true, `${changes}`);
});

test("a storage error of the leader is known in all tabs, which go on in memory", async (t) => {
  const store = new SharedStore();
  const commit = store.commit.bind(store);
  const { clock, tabs } = setUpTabs(t, { store });
  const [first, second] = await tabs(2);
  store.commit = async (change, term) => {
    if (term !== undefined) throw new DOMException("the disk is full", "QuotaExceededError");
    return commit(change);
  };
  await second.send(bob(second), "hi");
  await clock.until(() => inAll([first, second], (client) => client.storeError?.name === "QuotaExceededError" && seqs(client, bob(client))[0] === 1));
});

test("what the last leader had answered, but not taken out of the outbox, is neither shown twice nor sent again", async (t) => {
  const store = new SharedStore();
  const { clock, server, tabs, open } = setUpTabs(t, { store });
  const [first] = await tabs(1);
  const commit = store.commit.bind(store);
  store.commit = ({ outboxDelete, ...change }, term) => commit(change, term); // as if it had ended before
  await first.send(bob(first), "hi");
  await clock.until(() => seqs(first, bob(first))[0] === 1);
  await clock.advance(1_000);
  first.tab.kill();
  assert.equal((await store.load()).outbox.length, 1);
  store.commit = commit;
  const second = await open();
  assert.deepEqual(texts(second, bob(second)), ["hi"]);
  await clock.until(() => second.state === "online");
  await clock.advance(5_000);
  assert.equal(server.count("send"), 1);
  assert.equal((await store.load()).outbox.length, 0);
});

test("a tab that is frozen while it joins, and frozen and thawed again and again, is not in its own way", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [first, second] = await tabs(2);
  for (let i = 0; i < 5; i++) {
    second.tab.freeze();
    second.tab.thaw();
    second.tab.freeze();
    await clock.advance(i);
    second.tab.thaw();
    await clock.advance(i);
  }
  await first.send(bob(first), "hi");
  await clock.until(() => seqs(second, bob(second))[0] === 1 && second.state === "online");
  first.tab.kill();
  await clock.until(() => second.leads && second.state === "online");
  assert.equal(server.sockets.length, 1);
});

const SEEDS = Number(process.env.SEEDS ?? 12); // set more to search for failures

// Tabs come, go, crash, freeze and stall, and the network fails, at random: in the end all tabs and the other user
// agree, and what a tab was told is stored is there once.
for (let seed = 1; seed <= SEEDS; seed++) {
  test(`tabs converge, whatever happens to them (seed ${seed})`, async (t) => {
    const random = seededRandom(seed);
    const pick = (list) => list[Math.floor(random() * list.length)];
    const { clock, server, open, alone } = setUpTabs(t);
    const other = await alone("bob");
    const running = [await open(), await open()];
    const away = [];
    const accepted = [];
    const leave = (client) => running.splice(running.indexOf(client), 1);
    const acts = {
      open: async () => running.length + away.length < 5 && running.push(await open()),
      send: async () => {
        const client = pick(running);
        if (!client) return;
        const text = `m${Math.floor(random() * 1e9)}`;
        client.send(client.keyFor("bob"), text).then(
          () => accepted.push(text),
          () => {}, // the tab was closed meanwhile
        );
        await clock.advance(random() * 20);
      },
      theirs: () => other.send(other.keyFor("alice"), `t${Math.floor(random() * 1e9)}`),
      edit: async () => {
        const client = pick(running);
        const row = client?.messages(client.keyFor("bob")).findLast(({ mine, seq, kind }) => mine && seq !== null && kind === "text");
        if (row) client.edit(client.keyFor("bob"), row, `${row.text}+`).catch(() => {});
      },
      kill: () => running.length > 1 && leave(pick(running)).map((client) => client.tab.kill()),
      close: () => running.length > 1 && leave(pick(running)).map((client) => client.close()),
      stop: () => {
        if (running.length + away.length < 2 || running.length === 0) return;
        const [client] = leave(pick(running));
        const [stop, back] = pick([["freeze", "thaw"], ["stall", "wake"], ["putAside", "comeBack"]]);
        client.tab[stop]();
        away.push({ client, back });
      },
      back: () => {
        if (away.length === 0) return;
        const [{ client, back }] = away.splice(Math.floor(random() * away.length), 1);
        client.tab[back]();
        running.push(client);
      },
      cut: () => server.cutAll(),
    };
    const names = ["open", "send", "send", "send", "send", "theirs", "edit", "kill", "close", "stop", "back", "back", "cut"];
    for (let i = 0; i < 200; i++) {
      await acts[pick(names)]();
      await clock.advance(random() < 0.1 ? 15_000 : random() * 200);
    }
    while (away.length > 0) acts.back();
    while (running.length < 2) running.push(await open());
    await clock.until(() => inAll(running, (client) => client.state === "online" && client.messages(client.keyFor("bob")).every(({ seq, state, revision }) => seq !== null && state !== "sending" && revision?.state !== "sending")), 120_000);
    await clock.advance(30_000);
    const first = running[0];
    for (const client of running) assert.deepEqual(client.messages(client.keyFor("bob")), first.messages(first.keyFor("bob")));
    const shown = (client, key) => client.messages(key).map(({ seq, text, edited }) => ({ seq, text, edited }));
    const ours = shown(first, first.keyFor("bob"));
    assert.deepEqual(shown(other, other.keyFor("alice")), ours);
    const original = ours.map(({ text }) => text.replace(/\++$/, ""));
    for (const text of accepted) assert.equal(original.filter((one) => one === text).length, 1, `${text} is there once`);
    assert.equal(new Set(original).size, original.length, "nothing is there twice");
    assert.equal(running.filter(({ leads }) => leads).length, 1);
    assert.equal(server.sockets.filter(({ userId }) => userId === "alice").length, 1);
    assert.ok(accepted.length > 10, `${accepted.length}`);
  });
}

for (const [what, happen] of [
  ["the network is back", ({ tab }) => tab.goOnline()],
  ["the page comes into sight", ({ tab }) => tab.setVisible(true)],
  ["the user asks for it", (client) => client.retryNow()],
]) {
  test(`a connection that died without a word is replaced within seconds once ${what}, in any tab`, async (t) => {
    const { clock, server, tabs } = setUpTabs(t);
    const both = await tabs(2);
    for (const client of both) {
      const [dead] = server.sockets;
      server.answer = (frame, socket) => (socket === dead ? "lose" : undefined);
      await clock.advance(60_000);
      happen(client);
      await clock.until(() => server.sockets.length === 1 && server.sockets[0] !== dead && both[0].state === "online", 6_000);
    }
  });
}

test("what need not be looked at again costs nothing", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [leader, follower] = await tabs(2);
  for (const visible of [false, true, false, true]) for (const { tab } of [leader, follower]) tab.setVisible(visible);
  await clock.advance(1_000);
  assert.equal(server.count("ping"), 0);
  await leader.close();
  await follower.close();
  for (const { tab } of [leader, follower]) tab.goOnline();
  await clock.advance(1_000);
  assert.equal(server.count("ping"), 0);
});
