import { test } from "node:test";
import assert from "node:assert/strict";
import { apply, describe, know, newFacts, noteGaps, raise, receive, unreadIn } from "../facts.js";
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
  assert.deepEqual(facts.receipts.get("bob"), { deliveredSeq: 4, readSeq: 4 });
});

const of = (seq, senderId = "bob", extra = {}) => ({ conversationId: "c", seq, messageId: `m${seq}`, senderId, messageType: "text", status: "normal", ...extra });

test("unread: what others wrote, whatever it is, beyond what was read or cleared", () => {
  const ledger = new Ledger("c", {
    baseSeq: 10,
    maxContiguousSeq: 16,
    messages: [of(11), of(12, "alice"), of(13, "bob", { messageType: "event", event: { kind: "title" } }), of(14, "bob", { status: "recalled" }), of(15), of(16)],
  });
  const unread = (positions, userId = "alice") => unreadIn({ ...newFacts(), ...positions }, ledger, userId);
  assert.equal(unread({ readSeq: 10 }), 5);
  assert.equal(unread({ readSeq: 11 }), 4);
  assert.equal(unread({ readSeq: 8 }), 7, "two that are not held");
  assert.equal(unread({ readSeq: 3, clearedSeq: 15 }), 1);
  assert.equal(unread({ readSeq: 20 }), 0);
  assert.equal(unread({ readSeq: 10, leftSeq: 14 }), 3, "a former member");
  assert.equal(unread({ readSeq: 10 }, "bob"), 1, "the title is one's own");
});

test("unread: what is committed above a gap counts, but for our own", () => {
  const ledger = new Ledger("c", { maxContiguousSeq: 1, messages: [of(1)] });
  ledger.push([of(3), of(4, "alice")], 6);
  const unread = (sent) => unreadIn(newFacts(), ledger, "alice", sent);
  assert.equal(unread([]), 5);
  assert.equal(unread([0, 4, 6]), 4, "what was answered, too");
});

test("unread: of what is not held, or not there, the server's number counts", () => {
  const facts = newFacts();
  const unread = (ledger) => unreadIn(facts, ledger, "alice");
  describe(facts, line(400, { unread: 5 }));
  const late = new Ledger("c");
  assert.equal(unread(late), 5, "nothing is held");
  late.see(400);
  late.startAfter(399);
  late.push([of(400), of(401), of(402, "alice")], 402);
  assert.equal(unread(late), 6);
  facts.readSeq = 398;
  assert.equal(unread(late), 3, "399, which is not held, 400 and 401");
  describe(facts, line(390, { readSeq: 380, unread: 0 }));
  assert.equal(unread(late), 3, "an old line changes nothing");
  facts.readSeq = 402;
  assert.equal(unread(late), 0);
});

test("unread: what a page lacks does not count, but where the server has counted it", () => {
  const facts = newFacts();
  describe(facts, line(2, { unread: 2 }));
  const ledger = new Ledger("c", { maxContiguousSeq: 2, messages: [of(1), of(2)] });
  const take = (page) => {
    const before = ledger.maxContiguousSeq;
    ledger.page(page);
    noteGaps(facts, before, page);
    return unreadIn(facts, ledger, "alice");
  };
  assert.equal(take({ messages: [of(1004), of(3), of(1006, "alice")], nextSeq: 1007, committedMaxSeq: 1008 }), 5, "1 to 3, 1004, and 1008 to come");
  facts.readSeq = 1004;
  assert.equal(take({ messages: [of(1008)], nextSeq: 1008, committedMaxSeq: 1008 }), 1);
  describe(facts, line(1030, { readSeq: 1004, unread: 21 }));
  assert.equal(take({ messages: [of(1031)], nextSeq: 1031, committedMaxSeq: 1031 }), 22, "retention took them");
});
