// The API that programs build on: what they may pass, and what they get.

import { test } from "node:test";
import assert from "node:assert/strict";
import { MAX_DATA_DEPTH, socketURL } from "../checks.js";
import { open } from "../client.js";
import { MAX_VIEWS } from "../readings.js";
import { MemoryStore } from "../store.js";
import { Views } from "../views.js";
import { SharedStore } from "./browser.js";
import { heldTexts, jwtOf, opaqueTokenOf, setUp, setUpOnline, setUpTabs, texts } from "./world.js";

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

test("what an earlier version has stored still counts", async (t) => {
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
  assert.equal(again.conversation("single:x").unread, 0);
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
    const { clock, server, alice } = await setUpOnline(t, "alice");
    server.refuse = ({ action }) => (action === "changes" ? { code: "BUSY", message: "busy", retryable: true } : undefined);
    const { conversationId } = server.between(["alice", "bob"], senderId);
    await clock.advance(1_000);
    assert.deepEqual([alice.conversation(conversationId).peer, alice.messages(conversationId).length], [null, 1], "nobody has said yet");
    server.refuse = () => undefined;
    await clock.until(() => alice.conversation(conversationId).peer === "bob");
    assert.equal(alice.keyFor(senderId), `to:${senderId}`);
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

// Does as React's useSyncExternalStore: it draws again if what it reads is another object.
function renders(client, read) {
  let snapshot = read();
  let count = 0;
  const { subscribe } = client; // it is called without the client
  const stop = subscribe(() => {
    const next = read();
    assert.ok(Object.is(next, read()), "another object although nothing changed");
    if (Object.is(next, snapshot)) return;
    snapshot = next;
    count++;
  });
  return { stop, take: () => [count, (count = 0)][0] };
}

test("what is read is the same object until it changes", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  for (let i = 1; i <= 5; i++) server.post("bob", { to: "alice" }, `message ${i}`, { data: { list: [{ i }] } });
  server.post("carol", { to: "alice" }, "hi");
  const group = alice.createGroup("Trip", ["bob"]);
  alice.show(group);
  await clock.advance(10_000);
  server.cutAll(); // the lines of the conversations tell more of them
  await clock.advance(10_000);
  const reads = { bobs: () => alice.messages("to:bob", 3), carols: () => alice.messages("to:carol"), bob: () => alice.conversation("to:bob"), carol: () => alice.conversation("to:carol"), all: () => alice.conversations(), members: () => alice.members(group), error: () => alice.storeError };
  const counts = Object.entries(reads).map(([name, read]) => [name, renders(alice, read)]);
  const take = () => counts.map(([name, { take }]) => [name, take()]).filter(([, count]) => count > 0).map(([name]) => name);
  const before = alice.messages("to:bob", 3);
  const beforeAll = alice.conversations();

  server.post("bob", { to: "alice" }, "message 6");
  await clock.advance(1_000);
  assert.deepEqual(take(), ["bobs", "bob", "all"]);
  const after = alice.messages("to:bob", 3);
  assert.deepEqual(after.map(({ text }) => text), ["message 4", "message 5", "message 6"]);
  assert.ok(after[0] === before[1] && after[1] === before[2], "rows that move up stay themselves");
  const same = alice.conversations().filter((conversation) => beforeAll.includes(conversation));
  assert.deepEqual(same.map(({ title }) => title).sort(), ["Trip", "carol"]);
  assert.ok(alice.conversations().includes(alice.conversation("to:carol")), "one object, however it is read");
  assert.ok(alice.messages(alice.keyFor("bob"), 3) === after, "and by whatever key");

  await alice.addMembers(group, ["carol"]);
  await clock.advance(1_000);
  assert.deepEqual(take(), ["all", "members"]);
  alice.markRead("to:carol");
  assert.deepEqual(take(), ["carol", "all"]);
  server.cutAll();
  await clock.until(() => alice.state === "online");
  await clock.advance(10_000);
  assert.deepEqual(take(), [], "a reconnect changes nothing of it");
  counts[0][1].stop();
  server.post("bob", { to: "alice" }, "message 7");
  await clock.advance(1_000);
  assert.deepEqual(take(), ["bob", "all"]);
});

test("what is read cannot be changed", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  server.post("bob", { to: "alice" }, "hi", { data: { list: [1] } });
  await clock.advance(1_000);
  const rows = alice.messages("to:bob");
  for (const change of [() => rows.push(1), () => (rows[0].text = "no"), () => rows[0].data.list.push(2), () => alice.conversations().pop(), () => (alice.conversation("to:bob").last.data.list = 1)]) {
    assert.throws(change, TypeError);
  }
  assert.deepEqual(alice.messages("to:bob")[0].data, { list: [1] });
});

test("readings are kept up to a limit, the latest", () => {
  const views = new Views(MAX_VIEWS);
  const read = (i) => views.get(`${i}`, "", () => [i]);
  const first = Array.from({ length: MAX_VIEWS }, (_, i) => read(i));
  assert.ok(first.every((value, i) => read(i) === value), "so many");
  read(0);
  read(MAX_VIEWS);
  assert.ok(read(0) === first[0]);
  assert.ok(read(1) !== first[1], "the one that was not asked for the longest is made anew");
});

test("a tab that follows reads the same objects too, and none of another picture", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const [leader, follower] = await tabs(2);
  server.post("bob", { to: "alice" }, "hi", { data: { list: [1] } });
  await clock.until(() => texts(follower, "to:bob").length === 1);
  server.cutAll(); // the line of the conversation tells more of it
  await clock.advance(10_000);
  const reads = [() => follower.messages("to:bob"), () => follower.conversations(), () => follower.conversation("to:bob"), () => follower.members("to:bob")];
  const counts = reads.map((read) => renders(follower, read));
  const before = reads.map((read) => read());
  leader.tab.kill();
  await clock.until(() => follower.leads && follower.state === "online");
  await clock.advance(10_000);
  assert.deepEqual(counts.map(({ take }) => take()), [0, 0, 0, 0]);
  assert.ok(reads.every((read, i) => read() === before[i]));
});

test("a message of someone else is told once in each tab, what was there before or is changed is not", async (t) => {
  const { clock, server, tabs, alone } = setUpTabs(t);
  for (let i = 1; i <= 120; i++) server.post("bob", { to: "alice" }, `old ${i}`);
  server.pageSize = 10;
  const [leader, follower] = await tabs(2, {});
  const told = [leader, follower].map((client) => {
    const heard = [];
    client.addEventListener("message", ({ detail: { key, row } }) => {
      assert.ok(client.messages(key).some(({ seq }) => seq === row.seq), "it can be read by then");
      heard.push(row.text);
    });
    return heard;
  });
  const take = () => told.map((heard) => heard.splice(0));
  await clock.advance(10_000);
  await leader.loadEarlier("to:bob");
  assert.deepEqual(take(), [[], []], "what a new device finds");

  const bob = await alone("bob");
  server.post("bob", { to: "alice" }, "one");
  await leader.send("to:bob", "mine");
  server.post("alice", { to: "bob" }, "mine, from elsewhere");
  server.post("dave", { to: "alice" }, "from a stranger");
  await clock.advance(10_000);
  for (const heard of take()) assert.deepEqual(heard.sort(), ["from a stranger", "one"]);
  const row = bob.messages("to:alice").find(({ text }) => text === "one");
  await bob.edit("to:alice", row, "one, edited");
  await clock.advance(10_000);
  await bob.recall("to:alice", row);
  await clock.advance(10_000);
  assert.deepEqual(take(), [[], []], "changes of it");

  leader.setOffline(true);
  await clock.advance(1_000);
  server.post("bob", { to: "alice" }, "while away, read elsewhere");
  server.act("alice", "ack", { conversationId: leader.keyFor("bob"), readSeq: server.conversations.get(leader.keyFor("bob")).head.lastSeq });
  server.post("bob", { to: "alice" }, "while away");
  leader.setOffline(false);
  await clock.advance(10_000);
  assert.deepEqual(take(), [["while away"], ["while away"]]);
});

const options = { url: "wss://example.com/v1", userId: "alice", deviceId: "web", token: () => "jwt", WebSocket: class {}, store: new MemoryStore(), tabs: null };
const wrongOptions = {
  "no url": [{ url: undefined }, /^url /],
  "a url of https": [{ url: "https://example.com/v1" }, /^url /],
  "a url without a host": [{ url: "wss://" }, /^url /],
  "a url with a fragment": [{ url: "wss://example.com/v1#x" }, /^url /],
  "an empty url": [{ url: "" }, /^url has/],
  "a url without a scheme": [{ url: "example.com/v1" }, /^url has/],
  "a url of a page where there is none": [{ url: "/v1" }, /^url is \/v1, but there is no page/],
  "an empty userId": [{ userId: "" }, /^userId /],
  "a userId that is a number": [{ userId: 5 }, /^userId /],
  "a userId of 129 bytes": [{ userId: "u".repeat(129) }, /^userId /],
  "no deviceId": [{ deviceId: undefined }, /^deviceId /],
  "a deviceId with a space": [{ deviceId: "my laptop" }, /^deviceId /],
  "a deviceId of 65": [{ deviceId: "d".repeat(65) }, /^deviceId /],
  "a token that is no function": [{ token: "jwt" }, /^token /],
  "no WebSocket in this Node": [{ WebSocket: undefined }, /^WebSocket is missing: Node/],
};
for (const [name, [wrong, message]] of Object.entries(wrongOptions)) {
  test(`open names what is wrong: ${name}`, { skip: wrong.WebSocket === undefined && "WebSocket" in wrong && "WebSocket" in globalThis }, async () => {
    await assert.rejects(open({ ...options, ...wrong }), { name: "TypeError", message });
  });
}

test("a url that is relative to the page", () => {
  const cases = [
    ["/v1", "https://example.com/chat/?a#b", "wss://example.com/v1"],
    ["/v1?a=b", "http://localhost:5173/", "ws://localhost:5173/v1?a=b"],
    ["./v1", "https://example.com/chat/", "wss://example.com/chat/v1"],
    ["../v1", "https://example.com/chat/room/", "wss://example.com/chat/v1"],
    ["//api.example.com/v1", "https://example.com/", "wss://api.example.com/v1"],
    ["wss://api.example.com", "https://example.com/", "wss://api.example.com"], // unchanged: tabs are one device if theirs are equal
    ["/v1", "file:///home/alice/chat.html", TypeError],
    ["/v1", "blob:https://example.com/1", TypeError],
    ["/v1", "about:blank", TypeError],
    ["/v1#x", "https://example.com/", TypeError],
    ["//", "https://example.com/", TypeError],
    ["https://example.com/v1", "https://example.com/", TypeError],
    ["v1", "https://example.com/", TypeError],
    [new URL("wss://example.com/v1"), "https://example.com/", TypeError],
  ];
  for (const [url, page, want] of cases) {
    if (want === TypeError) assert.throws(() => socketURL(url, page), { name: "TypeError", message: /^url has/ }, `${url} of ${page}`);
    else assert.equal(socketURL(url, page), want);
  }
});

test("a token of this user connects", async (t) => {
  const { online } = setUp(t);
  const alice = await online("alice", { token: () => jwtOf("alice") });
  assert.equal(alice.state, "online");
});

const wrongTokens = {
  "of another user": [() => jwtOf("bob"), "offline", /“bob”.*“alice”/],
  "with a line break": [() => `${jwtOf("alice")}\n`, "offline", /no JWT/],
  empty: [() => "", "offline", /no JWT/],
  "that is none": [() => undefined, "offline", /no JWT/],
  "that a parser chokes on": [() => JSON.parse(jwtOf("alice")), "connecting", /JSON/],
  "that an error quotes": [() => Promise.reject(Object.assign(new Error(`bad: ${jwtOf("alice")}`), { permanent: true })), "offline", /^bad: …$/],
  "that is thrown": [() => Promise.reject(jwtOf("alice")), "connecting", /^…$/],
  "instead of which nothing is thrown": [() => Promise.reject(), "connecting", /./],
};
for (const [name, [token, state, detail]] of Object.entries(wrongTokens)) {
  test(`a token ${name} is told of, and never shown`, async (t) => {
    const { clock, server, device } = setUp(t);
    const logged = [];
    const alice = device("alice", { token, log: (line) => logged.push(line) });
    await alice.start();
    await clock.advance(1_000);
    assert.deepEqual([alice.state, server.sockets.length], [state, 0]);
    assert.match(alice.detail, detail);
    for (const text of [alice.detail, ...logged]) assert.ok(!text.includes("eyJhbG"), text);
  });
}

// Nothing is asked for, sent or taken in until the server has said whose such a token is.
for (const owner of ["alice", "mallory"]) {
  test(`a token that only the server can read, of ${owner}`, async (t) => {
    const { clock, server, device } = setUp(t);
    const [group, theirs] = [server.group("g", ["alice", "bob"]), server.group("theirs", ["mallory", "bob"])];
    server.post("bob", { conversationId: group }, "there before");
    let busy = 6; // for longer than the outbox waits, and shorter than a question does
    server.answer = (frame) => {
      if (frame.action !== "changes" || busy-- <= 0) return undefined;
      for (const key of [group, theirs]) server.post("bob", { conversationId: key }, "pushed");
      return { type: "error", id: frame.id, error: { code: "BUSY", message: "busy", retryable: true } };
    };
    const store = new MemoryStore();
    const alice = device("alice", { token: () => opaqueTokenOf(owner), store });
    const states = new Set();
    alice.subscribe(() => busy > 0 && states.add(alice.state));
    await alice.start();
    alice.show(group);
    const sent = alice.send(group, "mine");
    const read = alice.receipts(group, 1).then(() => "read", ({ code }) => code);
    await clock.until(() => busy <= 0);
    assert.deepEqual([...new Set(server.requests.map(({ frame }) => frame.action))], ["changes"]);
    assert.deepEqual([...states], ["connecting"], "and it is not online before");
    await clock.advance(6_000);
    await sent;
    if (owner === "alice") {
      assert.deepEqual([alice.state, texts(alice, group).at(-1), texts(alice, group).length, await read], ["online", "mine", 8, "read"]);
      return;
    }
    assert.deepEqual([alice.state, alice.detail], ["offline", "token() gave a token of “mallory”, but userId is “alice”"]);
    assert.deepEqual([server.sockets.length, await read], [0, "DISCONNECTED"]);
    assert.deepEqual([...new Set(server.requests.map(({ frame }) => frame.action))], ["changes"]);
    const { conversations, messages, outbox } = await store.load();
    assert.deepEqual([conversations, messages, outbox.length], [[], [], 1]);
    assert.deepEqual(alice.messages(theirs), []);
  });
}

test("a server that names nobody, as an older one does, takes tokens that do", async (t) => {
  const { clock, server, online, device } = setUp(t);
  server.names = () => undefined;
  const alice = await online("alice");
  const other = device("alice", { deviceId: "web-2", token: () => opaqueTokenOf("alice") });
  await other.start();
  await clock.advance(60_000);
  assert.deepEqual([alice.state, other.state], ["online", "connecting"]);
});

test("a token of another user, told by the server, ends all tabs of the device, and a right one takes them back", async (t) => {
  const { clock, server, tabs, open } = setUpTabs(t);
  let owner = "alice";
  const token = () => opaqueTokenOf(owner);
  const [leader, follower] = await tabs(2, { token });
  owner = "mallory";
  server.cutAll();
  await clock.until(() => follower.state === "offline");
  await follower.send("to:bob", "hi");
  await clock.advance(60_000);
  assert.deepEqual([leader.state, follower.state, server.sockets.length, server.count("send")], ["offline", "offline", 0, 0]);
  for (const tab of [leader, follower, await open({ token })]) assert.match(tab.detail, /“mallory”.*“alice”/);
  owner = "alice";
  follower.setOffline(false);
  await clock.until(() => server.count("send") === 1);
  assert.deepEqual(server.requests.filter(({ userId }) => userId === "mallory").map(({ frame }) => frame.action), ["changes"]);
});

test("what the browser says of a socket that it does not even try is told without the token", async (t) => {
  const { clock, device } = setUp(t);
  const alice = device("alice", {
    token: () => jwtOf("alice"),
    WebSocket: class {
      constructor(url, protocols) {
        throw new SyntaxError(`no ${protocols}`);
      }
    },
  });
  await alice.start();
  await clock.advance(1_000);
  assert.deepEqual([alice.state, alice.detail], ["offline", "the browser does not connect to ws://127.0.0.1:1/local?device=web-alice: no inorder.v1,bearer.…"]);
});

const nested = (depth) => (depth === 1 ? {} : { in: nested(depth - 1) });
const cycle = { list: [] };
cycle.list.push(cycle);
const wide = Array.from({ length: 40 }).reduce((part) => ({ a: part, b: part }), {});
const unsendable = {
  "a function": { data: { f() {} } },
  "a symbol": { data: { s: Symbol("s") } },
  "a BigInt": { data: { list: [1n] } },
  "not a number": { data: { n: NaN } },
  "a Map": { data: { m: new Map() } },
  "a node of the page": { data: { node: { [Symbol.toStringTag]: "HTMLDivElement" } } },
  "a cycle": { data: cycle },
  "nothing in a list": { data: { list: [undefined] } },
  "too deep": { data: nested(MAX_DATA_DEPTH + 1) },
  "too wide": { data: wide },
  "data that is a list": { data: [] },
  "data that is a text": { data: "d" },
  "a text that is a number": { text: 5 },
  "a type that is a symbol": { type: Symbol("t"), text: "hi" },
  "no content": null,
};
for (const [name, content] of Object.entries(unsendable)) {
  test(`what cannot be stored is refused at once, and nothing breaks: ${name}`, async (t) => {
    const { clock, server, tabs } = setUpTabs(t);
    const clients = await tabs(2);
    for (const client of clients) {
      await assert.rejects(client.send("to:bob", content), TypeError);
      await client.send("to:bob", "good");
    }
    await clock.until(() => server.count("send") === 2);
    await clock.advance(1_000);
    for (const client of clients) assert.deepEqual([client.storeError, texts(client, "to:bob")], [null, ["good", "good"]]);
  });
}

test("what a framework's objects show is sent, as it was then", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const reactive = (object) => new Proxy(object, { get: (target, name) => (typeof target[name] === "object" && !(target[name] instanceof Date) ? reactive(target[name]) : target[name]) });
  for (const client of await tabs(2)) {
    const given = { list: [{ n: 1 }], at: new Date(0), left: undefined };
    const sent = client.send("to:bob", { type: "custom", data: reactive(given) });
    given.list[0].n = 2;
    await sent;
    const group = client.createGroup("Trip", reactive(["bob"]));
    await client.addMembers(group, reactive(["carol"]));
    await client.removeMembers(group, reactive(["carol"]));
    await clock.advance(5_000);
    const { data } = client.messages("to:bob").at(-1);
    assert.deepEqual(data, { list: [{ n: 1 }], at: "1970-01-01T00:00:00.000Z" });
    assert.deepEqual([client.storeError, client.conversation(group).memberCount, client.conversation(group).closed], [null, 2, null]);
  }
  assert.deepEqual(server.asked("send")[0].data.list, [{ n: 1 }]);
});

test("a device that is new, or starts over, is told of nothing that was there", async (t) => {
  const { clock, server, device } = setUp(t);
  const heard = [];
  const alice = device("alice");
  alice.addEventListener("message", ({ detail: { row } }) => heard.push(row.text));
  for (let i = 1; i <= 3; i++) server.post("bob", { to: "alice" }, "before");
  await alice.start();
  await clock.advance(5_000);
  server.wipe();
  server.post("bob", { to: "alice" }, "of another world");
  alice.setOffline(true);
  alice.setOffline(false);
  await clock.advance(5_000);
  assert.deepEqual([heard, heldTexts(alice, "to:bob")], [[], ["of another world"]]);
  server.post("bob", { to: "alice" }, "new");
  await clock.advance(5_000);
  assert.deepEqual(heard, ["new"]);
});

test("a cycle and what is nowhere in JSON are named with their place", async (t) => {
  const { device } = setUp(t);
  const alice = device("alice");
  await assert.rejects(alice.send("to:bob", { type: "custom", data: cycle }), { message: "data.list[0] cannot be sent: it contains itself" });
  await assert.rejects(alice.send("to:bob", { type: "custom", data: { a: [{ b: 1n }] } }), { message: "data.a[0].b cannot be sent: JSON has no bigint" });
});

test("data may be as deep as the server takes it", async (t) => {
  const { alice } = await setUpOnline(t, "alice");
  await alice.send("to:bob", { type: "custom", data: nested(MAX_DATA_DEPTH) });
});

test("arguments of another type are refused where they are given", async (t) => {
  const { alice } = await setUpOnline(t, "alice");
  for (const call of [() => alice.keyFor(5), () => alice.messages(undefined), () => alice.show({}), () => alice.markRead(null), () => alice.createGroup("g", "bob"), () => alice.createGroup(5, [])]) assert.throws(call, TypeError);
  for (const call of [() => alice.addMembers("group:g", "bob"), () => alice.removeMembers("group:g", [5]), () => alice.setTitle("group:g", 5), () => alice.setRole("group:g", () => {}, "admin"), () => alice.receipts("group:g", "1"), () => alice.edit("to:bob", { seq: 1, messageId: "m" }, { data: { f() {} } })]) await assert.rejects(call(), TypeError);
  assert.deepEqual(alice.conversations(), []);
});

test("a user id where a key is due is refused where it is given", async (t) => {
  const { alice } = await setUpOnline(t, "alice");
  const message = /^a conversation's key is .* keyFor .*; "bob" is none$/;
  for (const call of [() => alice.messages("bob"), () => alice.conversation("bob"), () => alice.may("bob", "leave"), () => alice.markRead("bob"), () => alice.show("bob")]) assert.throws(call, { name: "TypeError", message });
  for (const call of [() => alice.send("bob", "hi"), () => alice.leave("bob"), () => alice.loadEarlier("bob")]) await assert.rejects(call(), { name: "TypeError", message });
});

test("an entry that the store cannot hold is passed: a stand-in has its place, and all else is stored", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const commit = store.commit.bind(store);
  store.commit = async (change, term) => {
    if (change.messages?.some(({ text }) => text === "unheard of")) throw new DOMException("no way", "DataCloneError");
    return commit(change, term);
  };
  const alice = await online("alice", { store });
  alice.setOffline(true);
  for (const text of ["one", "unheard of", "three"]) server.post("bob", { to: "alice" }, text);
  alice.setOffline(false);
  await clock.advance(5_000);
  server.post("bob", { to: "alice" }, "four");
  await clock.advance(5_000);
  assert.deepEqual([alice.storeError, texts(alice, "to:bob")], [null, ["one", "unheard of", "three", "four"]]);
  const { messages, conversations } = await store.load();
  assert.deepEqual(messages.map(({ seq, text, senderId }) => [seq, text, senderId]), [[1, "one", "bob"], [2, null, "bob"], [3, "three", "bob"], [4, "four", "bob"]]);
  assert.equal(conversations[0].maxContiguousSeq, 4);
  alice.setOffline(true);
  const again = await online("alice", { store });
  assert.deepEqual(texts(again, "to:bob"), ["one", "", "three", "four"]);
});

const tooMany = { code: "LIMIT", message: "too many", retryable: false };
const refuseBad = (frame) => (frame.text === "bad" || frame.action === "createGroup" ? tooMany : undefined);

test("what was refused can be sent again from any tab: once, after all else, under its clientMsgId", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const clients = await tabs(2);
  for (const client of clients) {
    server.refuse = refuseBad;
    const id = await client.send("to:bob", "bad");
    await clock.until(() => client.messages("to:bob").some(({ state }) => state === "failed"));
    assert.deepEqual(client.messages("to:bob").at(-1).error, tooMany);
    await client.send("to:bob", "good");
    await clock.advance(5_000);
    server.refuse = () => undefined;
    client.setOffline(true);
    await clock.until(() => client.state === "offline");
    await client.send("to:bob", "later");
    const retry = async () => (await Promise.all([client.retry(id), clock.advance(1_000)]))[0];
    assert.equal(await retry(), id);
    for (const other of clients) assert.deepEqual(texts(other, "to:bob").slice(-2), ["later", "bad"]);
    assert.equal(await retry(), id, "it is on its way");
    client.setOffline(false);
    await clock.advance(5_000);
    const { state, error, clientMsgId } = client.messages("to:bob").at(-1);
    assert.deepEqual([state, error, clientMsgId], ["sent", null, id]);
    assert.equal(await retry(), null, "it is sent");
  }
  assert.deepEqual(texts(clients[0], "to:bob"), ["good", "later", "bad", "good", "later", "bad"]);
});

test("a group that could not be made is made by a retry of anything that was meant for it", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  let alice = await online("alice", { store });
  server.refuse = refuseBad;
  const key = alice.createGroup("Trip", ["bob"]);
  const id = await alice.send(key, "hello");
  await clock.until(() => alice.conversation(key).closed === "failed");
  server.refuse = () => undefined;
  alice.setOffline(true);
  alice = await online("alice", { store }); // after a reload
  await alice.retry(id);
  await clock.until(() => alice.conversation(key).closed === null && alice.messages(key).at(-1).state === "sent");
  assert.deepEqual(alice.messages(key).map(({ kind, text }) => [kind, text]), [["event", ""], ["text", "hello"]]);
});

test("a clientMsgId that the server refuses is not sent again", async (t) => {
  const { clock, server, online } = setUp(t);
  const store = new MemoryStore();
  const entry = { order: 1, action: "send", address: { to: "bob" }, fields: { messageType: "text" }, text: "hi", clientTime: 1, state: "failed" };
  await store.commit({ outboxPut: [
    { ...entry, clientMsgId: "i".repeat(65), error: "BAD_REQUEST: clientMsgId has at most 64 bytes" }, // as an earlier version of this code stored it
    { ...entry, clientMsgId: "used", order: 2, error: { code: "IDEMPOTENCY_CONFLICT", message: "used", retryable: false } },
  ] });
  const alice = await online("alice", { store });
  const rows = alice.messages("to:bob");
  assert.deepEqual(rows[0].error, { code: "BAD_REQUEST", message: "clientMsgId has at most 64 bytes", retryable: false });
  for (const { clientMsgId } of rows) assert.notEqual(await alice.retry(clientMsgId), clientMsgId);
  await clock.until(() => alice.messages("to:bob").every(({ state }) => state === "sent"));
  await clock.advance(1_000);
  assert.deepEqual([texts(alice, "to:bob"), server.count("send"), (await store.load()).outbox], [["hi", "hi"], 2, []]);
});

test("what was in view is read, and nothing after it", async (t) => {
  const { clock, server, tabs } = setUpTabs(t);
  const clients = await tabs(2);
  for (let i = 1; i <= 6; i++) server.post("bob", { to: "alice" }, `${i}`);
  await clock.advance(2_000);
  const unread = () => clients.map((client) => client.conversation("to:bob").unread);
  const readSeqs = () => clients.map((client) => client.conversation("to:bob").readSeq);
  assert.deepEqual(readSeqs(), [0, 0]);
  clients[0].markRead("to:bob", 2);
  await clock.advance(2_000);
  assert.deepEqual(unread(), [4, 4]);
  clients[1].markRead("to:bob", 4);
  clients[1].markRead("to:bob", 3);
  await clock.advance(2_000);
  assert.deepEqual([unread(), readSeqs()], [[2, 2], [4, 4]]);
  assert.equal(server.line("alice", clients[0].keyFor("bob")).readSeq, 4);
  clients[1].markRead("to:bob", 99);
  await clock.advance(2_000);
  assert.deepEqual(unread(), [0, 0]);
  assert.equal(server.line("alice", clients[0].keyFor("bob")).readSeq, 6, "no further than there is");
  assert.throws(() => clients[0].markRead("to:bob", "7"), TypeError);
});

for (const who of ["leads", "follows"]) {
  test(`a device is forgotten by a tab that ${who}: all tabs end and nothing is kept`, async (t) => {
    const store = new SharedStore();
    const { clock, server, tabs, open } = setUpTabs(t, { store });
    const clients = await tabs(3);
    for (let i = 1; i <= 3; i++) server.post("bob", { to: "alice" }, `${i}`);
    await clock.advance(1_000);
    server.refuse = ({ action }) => (action === "send" ? { code: "BUSY", message: "busy", retryable: true } : undefined);
    for (const client of clients) await client.send("to:bob", "not sent");
    await clock.advance(1_000);
    const [one] = clients.filter(({ leads }) => leads === (who === "leads"));
    const closed = one.close({ forget: true });
    await clock.advance(1_000);
    await closed;
    assert.deepEqual(await store.load(), { syncCursor: null, conversations: [], messages: [], outbox: [], lost: [] });
    for (const client of clients) {
      assert.deepEqual([client.state, client.detail, client.leads, client.conversations()], ["offline", "closed", false, []]);
      await assert.rejects(client.send("to:bob", "after"), { code: "CLOSED" });
    }
    await clock.advance(60_000);
    assert.deepEqual([server.sockets.length, (await store.load()).messages], [0, []]);
    server.refuse = () => undefined;
    const again = await open();
    await clock.until(() => again.state === "online");
    await clock.advance(10_000);
    assert.deepEqual(texts(again, "to:bob"), ["1", "2", "3"], "what the server has, and nothing else");
  });
}

test("a tab that stands still when the device is forgotten writes nothing afterwards", async (t) => {
  const store = new SharedStore();
  const { clock, server, tabs } = setUpTabs(t, { store });
  const [leader, follower] = await tabs(2);
  leader.tab.stall();
  server.post("bob", { to: "alice" }, "hi");
  await clock.advance(100);
  const closed = follower.close({ forget: true });
  await clock.advance(1_000);
  await closed;
  leader.tab.wake();
  await clock.advance(10_000);
  assert.deepEqual([leader.detail, (await store.load()).messages, (await store.load()).syncCursor], ["closed", [], null]);
});

test("a device that cannot be wiped says so", async (t) => {
  const { online } = setUp(t);
  const store = new MemoryStore();
  const alice = await online("alice", { store });
  store.claim = () => Promise.reject(new Error("the disk is gone"));
  await assert.rejects(alice.close({ forget: true }), { message: "the disk is gone" });
  assert.equal(alice.detail, "closed");
});

for (const ahead of [0, 3_600_000, -3_600_000]) {
  test(`a row knows how long it can be edited and recalled, in every tab, also where the clock is ${ahead} ms ahead`, async (t) => {
    const { clock, server, tabs } = setUpTabs(t);
    server.windowMs = 60_000;
    const clients = await tabs(2, ahead === 0 ? {} : { clock: { ...clock, now: () => clock.now() + ahead } });
    const [leader] = clients;
    await leader.send("to:bob", "mine");
    await clock.until(() => server.count("send") === 1);
    server.post("bob", { to: "alice" }, "his");
    await clock.advance(1_000);
    const rights = () => clients.map((client) => client.messages("to:bob").map(({ text, canEdit, canRecall }) => `${text} ${canEdit} ${canRecall}`).join());
    const counts = clients.map((client) => renders(client, () => client.messages("to:bob")));
    assert.deepEqual(rights(), ["mine true true,his false false", "mine true true,his false false"]);
    await clock.advance(58_000);
    assert.deepEqual(rights(), ["mine true true,his false false", "mine true true,his false false"]);
    counts.forEach(({ take }) => take());
    await clock.advance(1_100); // an answer takes its time
    assert.deepEqual(rights(), ["mine false false,his false false", "mine false false,his false false"]);
    assert.deepEqual(counts.map(({ take }) => take()), [1, 1], "and it is told when that changes");
    const { seq, messageId } = leader.messages("to:bob")[0];
    assert.throws(() => server.act("alice", "recall", { conversationId: leader.keyFor("bob"), seq, messageId }), { code: "TOO_LATE" });
  });
}

test("without a word of the server a message can be changed for ever, and never where the window is nothing", async (t) => {
  const { clock, server, alice } = await setUpOnline(t, "alice");
  await alice.send("to:bob", "hi");
  const rights = () => alice.messages("to:bob").map(({ canEdit, canRecall }) => [canEdit, canRecall])[0];
  assert.deepEqual(rights(), [false, false], "not before it is committed");
  await clock.advance(24 * 3_600_000);
  assert.deepEqual(rights(), [true, true]);
  server.windowMs = 0;
  server.cutAll();
  await clock.until(() => alice.state === "online");
  await clock.advance(1_000);
  await alice.send("to:bob", "again");
  await clock.advance(1_000);
  assert.deepEqual(alice.messages("to:bob").map(({ canEdit, canRecall }) => [canEdit, canRecall]), [[false, false], [false, false]]);
});

test("what a row says that we may do in a group is what the server lets us do", async (t) => {
  const { clock, server, online } = setUp(t);
  server.windowMs = 60_000;
  const users = ["owner", "admin", "other admin", "member", "other member"];
  const { conversationId } = server.act("owner", "createGroup", { title: "Trip", members: users.slice(1) });
  for (const userId of ["admin", "other admin"]) server.act("owner", "setRole", { conversationId, userId, role: "admin" });
  for (const [when, tries] of [["in time", ["edit", "recall"]], ["too late", ["recall"]]]) {
    for (const userId of users) {
      const posted = users.map((senderId) => server.post(senderId, { conversationId }, `of ${senderId}`));
      if (when === "too late") await clock.advance(61_000);
      const client = await online(userId, { deviceId: `web-${users.indexOf(userId)}` });
      client.show(conversationId);
      await clock.advance(2_000);
      for (const { seq, messageId, version, senderId } of posted) {
        const row = client.messages(conversationId).find((candidate) => candidate.seq === seq);
        for (const action of tries) {
          const can = action === "edit" ? row.canEdit : row.canRecall;
          const attempt = () => server.act(userId, action, { conversationId, seq, messageId, ...(action === "edit" && { version, text: "x" }) });
          if (can) attempt();
          else assert.throws(attempt, (error) => ["FORBIDDEN", "TOO_LATE"].includes(error.code), `${userId} cannot ${action} what is of ${senderId}, ${when}`);
        }
      }
      assert.ok(client.messages(conversationId).filter(({ kind }) => kind === "event").every(({ canEdit, canRecall }) => !canEdit && !canRecall));
      await clock.advance(1_000);
      assert.ok(client.messages(conversationId).filter(({ recalled }) => recalled).every(({ canEdit, canRecall }) => !canEdit && !canRecall));
      client.setOffline(true);
    }
  }
  server.act("owner", "dissolve", { conversationId });
  const owner = await online("owner");
  await clock.advance(2_000);
  assert.ok(owner.messages(conversationId).every(({ canEdit, canRecall }) => !canEdit && !canRecall), "nothing is changed in a dissolved group");
});
