import { test } from "node:test";
import assert from "node:assert/strict";
import { apply, describe, know, newFacts, raise, receive, unreadIn } from "../facts.js";
import { Ledger } from "../ledger.js";

const line = (lastSeq, extra = {}) => ({ conversationId: "group:g", kind: "group", title: "Trip", state: "active", owner: "alice", memberCount: 2, lastSeq, readSeq: 0, deliveredSeq: 0, clearedSeq: 0, unread: lastSeq, ...extra });
const event = (seq, senderId, fields) => ({ seq, senderId, event: { kind: "members", ...fields } });

test("the newer of line and event wins", () => {
  const facts = newFacts();
  describe(facts, line(5, { title: "Five" }));
  apply(facts, event(4, "alice", { kind: "title", title: "Four" }), "bob");
  assert.equal(facts.title, "Five");
  apply(facts, event(6, "alice", { kind: "title", title: "Six" }), "bob");
  describe(facts, line(5, { title: "Five" }));
  assert.equal(facts.title, "Six");
  describe(facts, line(7, { title: "Seven", memberCount: 9 }));
  assert.deepEqual([facts.title, facts.memberCount], ["Seven", 9]);
});

test("events change what they tell of", () => {
  const facts = newFacts();
  assert.deepEqual(apply(facts, event(1, "alice", { added: ["alice", "bob"], owner: "alice", title: "Trip" }), "bob"), { roster: true, joined: true });
  assert.deepEqual([facts.title, facts.owner, facts.memberCount], ["Trip", "alice", 2]);
  apply(facts, event(2, "alice", { removed: ["bob"] }), "bob");
  assert.deepEqual([facts.leftSeq, facts.memberCount], [2, 1]);
  assert.deepEqual(apply(facts, event(9, "alice", { added: ["bob"] }), "bob"), { roster: true, joined: true });
  assert.equal(facts.leftSeq, 0);
  apply(facts, { seq: 10, senderId: "alice", event: { kind: "dissolve" } }, "bob");
  assert.equal(facts.state, "dissolved");
  assert.deepEqual(apply(facts, { seq: 11, senderId: "alice", event: null }, "bob"), { roster: false, joined: false });
});

test("positions only ever rise, and what the server told is known apart", () => {
  const facts = newFacts();
  assert.equal(raise(facts, { readSeq: 5 }), true);
  assert.equal(raise(facts, { readSeq: 4, deliveredSeq: undefined }), false);
  assert.equal(know(facts, { readSeq: 3, deliveredSeq: 7 }), true);
  assert.deepEqual([facts.readSeq, facts.deliveredSeq, facts.told], [5, 7, { readSeq: 3, deliveredSeq: 7, clearedSeq: 0 }]);
  receive(facts, "bob", { readSeq: 4 });
  receive(facts, "bob", { deliveredSeq: 3 });
  assert.deepEqual(facts.receipts.bob, { deliveredSeq: 4, readSeq: 4 });
});

test("unread: what others wrote, beyond what was read, cleared, or there before us", () => {
  const m = (seq, extra = {}) => ({ seq, senderId: "bob", messageType: "text", status: "normal", ...extra });
  const ledger = new Ledger("c", {
    baseSeq: 10,
    maxContiguousSeq: 16,
    messages: [m(11), m(12, { senderId: "alice" }), m(13, { messageType: "event", event: { kind: "title" } }), m(14, { status: "recalled" }), m(15), m(16)],
  });
  const unread = (positions) => unreadIn({ ...newFacts(), ...positions }, ledger, "alice");
  assert.equal(unread({ readSeq: 10 }), 3);
  assert.equal(unread({ readSeq: 11 }), 2);
  assert.equal(unread({ readSeq: 8 }), 5, "two that are not held");
  assert.equal(unread({ readSeq: 3, clearedSeq: 15 }), 1);
  const facts = newFacts();
  describe(facts, line(16, { readSeq: 2, unread: 1 })); // we joined at 16
  assert.equal(unreadIn(facts, ledger, "alice"), 1);
});
