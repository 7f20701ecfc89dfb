import { test } from "node:test";
import assert from "node:assert/strict";
import { Connection, MAX_FRAME_BYTES, TIMING, fullJitter } from "../connection.js";
import { VirtualClock } from "./clock.js";

class Socket {
  sent = [];
  closed = false;
  send(data) {
    this.sent.push(JSON.parse(data));
  }
  close() {
    this.closed = true;
  }
  say(frame) {
    this.onmessage({ data: JSON.stringify(frame) });
  }
}

// A connection whose sockets the test plays by hand. Jitter is at its largest.
function setUp(t, { open } = {}) {
  const clock = new VirtualClock();
  const sockets = [];
  const seen = { opens: 0, pushes: [], states: [] };
  const connection = new Connection({
    clock,
    random: () => 1,
    log: () => {},
    hooks: {
      open:
        open ??
        (async () => {
          sockets.push(new Socket());
          return sockets.at(-1);
        }),
      onOpen: () => seen.opens++,
      onPush: (frame) => {
        if (frame.type === "poison") throw new Error("cannot digest");
        seen.pushes.push(frame);
      },
      onState: () => seen.states.push(connection.state),
    },
  });
  t.after(() => connection.stop());
  const opened = async () => {
    connection.start();
    await clock.advance(0);
    sockets.at(-1).onopen();
    return sockets.at(-1);
  };
  return { clock, sockets, seen, connection, opened };
}

test("full jitter stays between nothing and a growing, capped bound", () => {
  const bounds = [0, 1, 2, 5, 6, 100].map((attempt) => fullJitter(() => 1, attempt, TIMING));
  assert.deepEqual(bounds, [300, 600, 1200, 9600, 10_000, 10_000]);
  assert.equal(fullJitter(() => 0, 9, TIMING), 0);
});

test("a socket that only errs, as Chromium's does where the page's policy forbids it, is lost at once", async (t) => {
  const { clock, sockets, connection } = setUp(t);
  connection.start();
  await clock.advance(0);
  sockets[0].onerror?.();
  assert.equal(connection.detail, "the server refused or could not be reached");
  sockets[0].onclose?.();
  await clock.advance(TIMING.backoffBaseMs);
  assert.equal(sockets.length, 2);
});

test("a reply reaches its request, whatever the order", async (t) => {
  const { connection, opened } = setUp(t);
  const socket = await opened();
  const [a, b] = [connection.request("sync", { afterSeq: 1 }), connection.request("ping")];
  const [first, second] = socket.sent;
  assert.equal(first.action, "sync");
  assert.equal(first.afterSeq, 1);
  socket.say({ type: "reply", id: second.id, result: { serverTime: 1 } });
  socket.say({ type: "error", id: first.id, error: { code: "BUSY", message: "later", retryable: true } });
  assert.deepEqual(await b, { serverTime: 1 });
  await assert.rejects(a, { code: "BUSY", retryable: true, message: "later" });
});

test("requests are refused while there is no connection", async (t) => {
  const { connection } = setUp(t);
  await assert.rejects(connection.request("ping"), { code: "DISCONNECTED", retryable: true });
});

test("a frame over the limit is refused, not sent", async (t) => {
  const { connection, opened } = setUp(t);
  const socket = await opened();
  await assert.rejects(connection.request("send", { text: "é".repeat(MAX_FRAME_BYTES / 2) }), { code: "TOO_LARGE", retryable: false });
  assert.equal(socket.sent.length, 0);
});

test("an error frame without an id fails everything that waits, as retryable", async (t) => {
  const { connection, opened, seen } = setUp(t);
  const socket = await opened();
  const waiting = [connection.request("sync"), connection.request("send")];
  socket.say({ message: "Internal server error", connectionId: "x=", requestId: "y=" });
  for (const request of waiting) await assert.rejects(request, { code: "INTERNAL", retryable: true });
  assert.equal(seen.pushes.length, 0);
  socket.say({ type: "reply", id: socket.sent[0].id, result: {} }); // late: ignored
});

test("pushes are handed on; one that cannot be digested does not stop the next", async (t) => {
  const { connection, opened, seen } = setUp(t);
  const socket = await opened();
  socket.say({ type: "poison" });
  socket.onmessage({ data: "not json" });
  socket.say({ type: "push", updates: [] });
  assert.deepEqual(seen.pushes, [{ type: "push", updates: [] }]);
});

test("a lost connection fails what waits and comes back after a growing delay", async (t) => {
  const { clock, sockets, connection, opened, seen } = setUp(t);
  const socket = await opened();
  const request = connection.request("ping");
  socket.onclose();
  await assert.rejects(request, { code: "DISCONNECTED" });
  assert.equal(connection.state, "connecting");
  for (const delay of [300, 600, 1200]) {
    const before = sockets.length;
    await clock.advance(delay - 1);
    assert.equal(sockets.length, before, `not before ${delay} ms`);
    await clock.advance(1);
    assert.equal(sockets.length, before + 1, `after ${delay} ms`);
    sockets.at(-1).onclose();
  }
  await clock.advance(2400);
  sockets.at(-1).onopen();
  assert.equal(connection.state, "online");
  assert.equal(seen.opens, 2);
  await clock.advance(TIMING.stableMs); // long enough to start over with the short delay
  sockets.at(-1).onclose();
  await clock.advance(300);
  assert.equal(sockets.length, 6);
});

test("retryNow cuts the waiting short", async (t) => {
  const { clock, sockets, connection, opened } = setUp(t);
  (await opened()).onclose();
  connection.retryNow();
  await clock.advance(0);
  assert.equal(sockets.length, 2);
});

test("a server that never answers the handshake is given up", async (t) => {
  const { clock, sockets, connection } = setUp(t);
  connection.start();
  await clock.advance(TIMING.dialTimeoutMs);
  assert.equal(sockets[0].closed, true);
  await clock.advance(300);
  assert.equal(sockets.length, 2);
});

test("a token that will never be given ends the attempts, any other failure does not", async (t) => {
  let failure = new Error("the network is down");
  let calls = 0;
  const { clock, connection } = setUp(t, {
    open: async () => {
      calls++;
      throw failure;
    },
  });
  connection.start();
  await clock.advance(300);
  assert.equal(calls, 2);
  assert.equal(connection.state, "connecting");
  assert.equal(connection.detail, "the network is down");
  failure = Object.assign(new Error("no such user"), { permanent: true });
  await clock.advance(600);
  assert.equal(connection.state, "offline");
  assert.equal(connection.detail, "no such user");
  await clock.advance(600_000);
  assert.equal(calls, 3);
});

test("stop closes and stays away, even from a dial on its way", async (t) => {
  const { clock, sockets, connection, opened } = setUp(t);
  const socket = await opened();
  connection.stop();
  assert.equal(socket.closed, true);
  assert.equal(connection.state, "offline");
  await clock.advance(600_000);
  assert.equal(sockets.length, 1);
  connection.start();
  connection.stop();
  await clock.advance(600_000);
  assert.equal(connection.state, "offline");
  assert.ok(sockets.every((each) => each.closed));
});

test("goodbye means: come back now", async (t) => {
  const { clock, sockets, connection, opened } = setUp(t);
  const socket = await opened();
  await clock.advance(TIMING.stableMs);
  socket.say({ type: "goodbye", reason: "deploy" });
  assert.equal(socket.closed, true);
  await clock.advance(0);
  assert.equal(sockets.length, 2);
  sockets[1].onopen();
  sockets[1].say({ type: "goodbye", reason: "deploy" });
  await clock.advance(0);
  assert.equal(sockets.length, 2, "a server that says nothing but goodbye is not hammered");
});

for (const reason of ["replaced", "devices"]) {
  test(`a connection that has to make room (${reason}) does not fight back`, async (t) => {
    const { clock, sockets, connection, opened } = setUp(t);
    const socket = await opened();
    await clock.advance(TIMING.stableMs);
    socket.say({ type: "goodbye", reason });
    await clock.advance(600_000);
    assert.equal(connection.state, "offline");
    assert.equal(connection.detail, reason);
    assert.equal(sockets.length, 1);
    connection.start();
    await clock.advance(0);
    assert.equal(sockets.length, 2, "unless the user says so");
  });
}

test("it moves on before two hours, and asks for nothing by itself", async (t) => {
  const { clock, sockets, connection, opened } = setUp(t);
  const socket = await opened();
  await clock.until(() => sockets.length === 2, 2 * 3600_000 - 1);
  assert.deepEqual(socket.sent, []);
  assert.equal(socket.closed, true);
  sockets[1].onopen();
  assert.equal(connection.state, "online");
});

test("silence after a request is probed, and a dead socket is replaced", async (t) => {
  const { clock, sockets, connection, opened } = setUp(t);
  const socket = await opened();
  const request = connection.request("sync");
  const timedOut = assert.rejects(request, { code: "TIMEOUT", retryable: true });
  await clock.advance(TIMING.requestTimeoutMs);
  await timedOut;
  assert.equal(socket.closed, false, "one slow answer is no proof");
  assert.equal(socket.sent.at(-1).action, "ping");
  await clock.advance(TIMING.requestTimeoutMs + 300);
  assert.equal(socket.closed, true);
  assert.equal(sockets.length, 2);
});

test("a clock that is set back does not hide that nobody answers", async (t) => {
  const { clock, connection, opened } = setUp(t);
  const socket = await opened();
  clock.setBack(3600_000);
  const timedOut = assert.rejects(connection.request("sync"), { code: "TIMEOUT" });
  await clock.advance(TIMING.requestTimeoutMs + TIMING.probeMs);
  await timedOut;
  assert.equal(socket.closed, true);
});

test("retryNow has a connection that looks open show that it lives, and soon", async (t) => {
  const { clock, sockets, connection, opened } = setUp(t);
  const socket = await opened();
  connection.retryNow();
  connection.retryNow();
  assert.deepEqual(socket.sent.map(({ action }) => action), ["ping"], "one question at a time");
  socket.say({ type: "reply", id: socket.sent[0].id, result: { serverTime: 1 } });
  await clock.advance(TIMING.probeMs);
  assert.equal(connection.state, "online");
  connection.retryNow(TIMING.probeMs + 1);
  assert.equal(socket.sent.length, 1, "it was heard of a moment ago");
  connection.retryNow(TIMING.probeMs);
  await clock.advance(TIMING.probeMs - 1);
  assert.equal(socket.closed, false);
  await clock.advance(1);
  assert.equal(socket.closed, true);
  await clock.advance(TIMING.backoffBaseMs);
  assert.equal(sockets.length, 2);
});

test("a slow answer on a live socket only fails its request", async (t) => {
  const { clock, connection, opened } = setUp(t);
  const socket = await opened();
  const timedOut = assert.rejects(connection.request("sync"), { code: "TIMEOUT" });
  await clock.advance(TIMING.requestTimeoutMs / 2);
  socket.say({ type: "push", updates: [] });
  await clock.advance(3 * TIMING.requestTimeoutMs);
  await timedOut;
  assert.deepEqual(socket.sent.map((frame) => frame.action), ["sync"]);
  assert.equal(socket.closed, false);
});
