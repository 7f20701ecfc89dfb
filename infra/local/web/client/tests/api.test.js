// What programs build on: what they may give, and what they are given.

import { test } from "node:test";
import assert from "node:assert/strict";
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
