import { test } from "node:test";
import assert from "node:assert/strict";
import { Ledger, accountsForAll } from "../ledger.js";

const m = (seq, extra = {}) => ({ seq, messageId: `id-${seq}`, text: `t${seq}`, status: "normal", version: 1, ...extra });
const seqs = (ledger) => ledger.messages.map((message) => message.seq);
const changedSeqs = (changed) => changed.map((message) => message.seq);

test("entries are shown in order, once, however they come", () => {
  const ledger = new Ledger("c");
  assert.deepEqual(changedSeqs(ledger.push([m(1)], 1)), [1]);
  assert.deepEqual(changedSeqs(ledger.push([m(3)], 3)), []);
  assert.equal(ledger.hasGap, true);
  assert.deepEqual(changedSeqs(ledger.push([m(3), m(1)], 3)), []);
  assert.deepEqual(changedSeqs(ledger.push([m(2)], 3)), [2, 3]);
  assert.deepEqual(seqs(ledger), [1, 2, 3]);
  assert.equal(ledger.hasGap, false);
  assert.equal(ledger.maxContiguousSeq, 3);
});

test("a head above what arrived is a gap", () => {
  const ledger = new Ledger("c", { maxContiguousSeq: 4 });
  ledger.push([], 5);
  assert.equal(ledger.hasGap, true);
  assert.equal(ledger.maxSeenSeq, 5);
});

test("the buffer of early entries is bounded and gives up the highest", () => {
  const ledger = new Ledger("c", { earlyLimit: 2 });
  ledger.push([m(5), m(3), m(4), m(2)], 5);
  assert.equal(ledger.earlyCount, 2);
  assert.deepEqual(changedSeqs(ledger.push([m(1)], 5)), [1, 2, 3]);
  assert.equal(ledger.hasGap, true, "5 is still known to exist");
});

test("a page is trusted for its whole range", () => {
  const ledger = new Ledger("c");
  ledger.push([m(3), m(6)], 6);
  const changed = ledger.page({ messages: [m(1), m(4)], skipped: [2, 3], nextSeq: 5, committedMaxSeq: 6 });
  assert.deepEqual(changedSeqs(changed), [1, 4, 6], "3 is not ours to see, 6 follows the page");
  assert.equal(ledger.maxContiguousSeq, 6);
  assert.equal(ledger.earlyCount, 0);
});

test("a page that was overtaken by pushes changes nothing twice", () => {
  const ledger = new Ledger("c");
  ledger.push([m(1), m(2), m(3)], 3);
  assert.deepEqual(ledger.page({ messages: [m(1), m(2)], nextSeq: 2, committedMaxSeq: 2 }), []);
  assert.equal(ledger.maxContiguousSeq, 3);
  assert.deepEqual(seqs(ledger), [1, 2, 3]);
});

test("settle gives up a number that the server does not know, unless an entry proves it", () => {
  const ledger = new Ledger("c", { maxContiguousSeq: 2 });
  ledger.see(9);
  ledger.settle(8);
  assert.equal(ledger.hasGap, true, "9 was heard after the question");
  ledger.settle(9);
  assert.equal(ledger.hasGap, false);
  ledger.push([m(9)], 9);
  ledger.settle(9);
  assert.equal(ledger.hasGap, true);
});

const recall = (seq, target) => m(seq, { messageType: "event", event: { kind: "recall", targetSeq: target, targetMessageId: `id-${target}` } });
const edit = (seq, target, version, text) => m(seq, { messageType: "event", text, event: { kind: "edit", targetSeq: target, targetMessageId: `id-${target}`, version } });

test("events revise their target", async (t) => {
  const cases = [
    { name: "an edit", events: [edit(2, 1, 2, "new")], text: "new", version: 2, status: "normal" },
    { name: "an older edit does not undo a newer one", events: [edit(2, 1, 3, "newest"), edit(3, 1, 2, "stale")], text: "newest", version: 3, status: "normal" },
    { name: "a recall", events: [recall(2, 1)], text: null, version: 1, status: "recalled" },
    { name: "an edit after a recall changes nothing", events: [recall(2, 1), edit(3, 1, 2, "new")], text: null, version: 1, status: "recalled" },
    { name: "another message of that number", events: [{ ...recall(2, 1), event: { kind: "recall", targetSeq: 1, targetMessageId: "other" } }], text: "t1", version: 1, status: "normal" },
    { name: "a target that is not here", events: [recall(2, 77)], text: "t1", version: 1, status: "normal" },
  ];
  for (const { name, events, ...want } of cases) {
    await t.test(name, () => {
      const ledger = new Ledger("c");
      ledger.push([...events, m(1)], events.length + 1);
      const { text, version, status } = ledger.messages[0];
      assert.deepEqual({ text, version, status }, want);
    });
  }
});

test("a revised target is reported, so that it is stored", () => {
  const ledger = new Ledger("c", { maxContiguousSeq: 1, messages: [m(1)] });
  assert.deepEqual(changedSeqs(ledger.push([recall(2, 1)], 2)), [2, 1]);
});

test("a recall takes the content out of the edits too", () => {
  const ledger = new Ledger("c");
  ledger.push([m(1), edit(2, 1, 2, "secret"), { ...recall(3, 1), event: { kind: "recall", targetSeq: 1, targetMessageId: "id-1", version: 3 } }], 3);
  assert.deepEqual(ledger.messages.map(({ text, status, version }) => [text ?? null, status, version]), [[null, "recalled", 3], [null, "recalled", 1], ["t3", "normal", 1]]);
});

test("an edit whose content is gone tells of a recall to come", () => {
  const ledger = new Ledger("c", { maxContiguousSeq: 1, messages: [m(1)] });
  ledger.page({ messages: [edit(2, 1, 2, undefined)].map((e) => ({ ...e, status: "recalled" })), nextSeq: 2, committedMaxSeq: 3 });
  assert.equal(ledger.messages[0].status, "recalled");
  ledger.push([{ ...recall(3, 1), event: { kind: "recall", targetSeq: 1, targetMessageId: "id-1", version: 3 } }], 3);
  assert.equal(ledger.messages[0].version, 3);
});

test("a ledger can begin late, and be filled from there backwards", () => {
  const ledger = new Ledger("c");
  ledger.push([m(9), m(4)], 9);
  ledger.startAfter(6);
  assert.deepEqual([ledger.baseSeq, ledger.maxContiguousSeq, ledger.earlyCount], [6, 6, 1]);
  ledger.startAfter(3);
  assert.equal(ledger.baseSeq, 6, "once");
  ledger.page({ messages: [m(7), m(8)], nextSeq: 8, committedMaxSeq: 9 });
  assert.deepEqual(seqs(ledger), [7, 8, 9]);
  assert.deepEqual(changedSeqs(ledger.earlier({ messages: [m(5), m(6)], nextBeforeSeq: 5, hasMore: true }, 7)), [5, 6]);
  assert.deepEqual(ledger.earlier({ messages: [m(5), m(6)], nextBeforeSeq: 5, hasMore: true }, 7), [], "the same page again");
  assert.equal(ledger.baseSeq, 4);
  ledger.earlier({ messages: [m(2)], nextBeforeSeq: 2, hasMore: false }, 5);
  assert.deepEqual([seqs(ledger), ledger.baseSeq], [[2, 5, 6, 7, 8, 9], 0]);
  assert.equal(ledger.get(5).text, "t5");
  assert.equal(ledger.get(4), undefined);
});

test("an event that comes before its target waits for it, also over a reload", () => {
  const ledger = new Ledger("c");
  ledger.startAfter(5);
  ledger.push([recall(6, 2), edit(7, 3, 2, "new")], 7);
  const reloaded = new Ledger("c", { baseSeq: ledger.baseSeq, maxContiguousSeq: 7, messages: ledger.messages });
  for (const late of [ledger, reloaded]) {
    assert.deepEqual(changedSeqs(late.earlier({ messages: [m(2), m(3)], nextBeforeSeq: 2, hasMore: true }, 6)), [2, 3]);
    assert.deepEqual([late.get(2).status, late.get(3).text], ["recalled", "new"]);
  }
});

test("a sync page is believed if it accounts for each seq that it passes", () => {
  const page = { messages: [m(3), m(5)], skipped: [4], nextSeq: 5, committedMaxSeq: 9 };
  assert.equal(accountsForAll(page, 2), true);
  assert.equal(accountsForAll(page, 3), true);
  assert.equal(accountsForAll(page, 1), false, "2 is left out");
  assert.equal(accountsForAll({ ...page, firstSeq: 3 }, 0), true, "what is before firstSeq is not for us");
  assert.equal(accountsForAll({ ...page, skipped: null }, 2), false, "4 is left out");
  assert.equal(accountsForAll({ ...page, nextSeq: 6 }, 2), false, "6 is left out");
  assert.equal(accountsForAll({ messages: [], nextSeq: 9, firstSeq: 10, committedMaxSeq: 9 }, 2), true);
});

test("a page read again that is from before an edit does not undo it", () => {
  const edit = m(2, { text: "edited", event: { kind: "edit", targetSeq: 1, targetMessageId: "id-1", version: 2 } });
  const ledger = new Ledger("c");
  ledger.page({ messages: [m(1), edit], nextSeq: 2, committedMaxSeq: 2 });
  assert.deepEqual(ledger.again([m(1)]), []);
  assert.equal(ledger.get(1).text, "edited");
  assert.deepEqual(changedSeqs(ledger.again([m(1, { status: "recalled", text: null, version: 2 })])), [1]);
});
