import { test } from "node:test";
import assert from "node:assert/strict";
import { arrange } from "./arrange.js";

const at = (day, hour, minute = 0) => new Date(2026, 10, day, hour, minute).getTime();
const now = at(30, 12);
const row = (seq, senderId, time, extra = {}) => ({ seq, senderId, mine: senderId === "alice", clientMsgId: `c${seq}`, kind: "text", time, ...extra });
// Such as "day Today", "new", "row 1", "row 2+" for one that follows.
const shape = (rows, newAfter = null) => arrange(rows, { newAfter, now }).map(({ kind, words, row, follows }) => (kind === "day" ? `day ${words}` : kind === "new" ? "new" : `row ${row.seq}${follows ? "+" : ""}`));

test("days, senders and pauses", () => {
  assert.deepEqual(shape([]), []);
  const rows = [row(1, "bob", at(28, 9)), row(2, "bob", at(28, 9, 4)), row(3, "bob", at(28, 9, 10)), row(4, "alice", at(28, 9, 11)), row(5, "bob", at(28, 23, 59)), row(6, "bob", at(29, 0, 1)), row(7, "bob", at(30, 9))];
  assert.deepEqual(shape(rows), ["day Saturday", "row 1", "row 2+", "row 3", "row 4", "row 5", "day Yesterday", "row 6", "day Today", "row 7"]);
});

test("an event stands alone", () => {
  assert.deepEqual(shape([row(1, "bob", at(30, 9)), row(2, "bob", at(30, 9), { kind: "event" }), row(3, "bob", at(30, 9))]), ["day Today", "row 1", "row 2", "row 3"]);
});

test("the line above what is new", () => {
  const rows = [row(1, "bob", at(30, 9)), row(2, "alice", at(30, 9)), row(3, "bob", at(30, 9)), row(4, "bob", at(30, 9)), row(null, "alice", at(30, 9))];
  assert.deepEqual(shape(rows, 1), ["day Today", "row 1", "row 2", "new", "row 3", "row 4+", "row null"], "above somebody else's, not above one's own");
  assert.deepEqual(shape(rows, 3), ["day Today", "row 1", "row 2", "row 3", "new", "row 4", "row null"]);
  assert.deepEqual(shape(rows, 4), ["day Today", "row 1", "row 2", "row 3", "row 4+", "row null"], "nothing is");
  assert.deepEqual(shape(rows, 0), ["day Today", "new", "row 1", "row 2", "row 3", "row 4+", "row null"]);
});

test("keys are unique, and a row keeps its own from sending to its seq", () => {
  const rows = [row(null, "bob", at(28, 9), { lost: true, messageId: "m1", clientMsgId: undefined }), row(null, "bob", at(28, 9), { lost: true, messageId: "m2", clientMsgId: "c1" }), row(1, "bob", at(28, 9)), row(2, "bob", at(30, 9)), row(3, "bob", at(28, 9)), row(4, "carol", at(28, 9), { clientMsgId: "c3" }), row(5, "bob", at(28, 9), { clientMsgId: undefined })];
  const keys = arrange(rows, { newAfter: 3, now }).map(({ key }) => key);
  assert.equal(new Set(keys).size, keys.length);
  const keyOf = (seq) => arrange([row(seq, "alice", now, { clientMsgId: "x" })], { newAfter: null, now }).at(-1).key;
  assert.equal(keyOf(null), keyOf(9));
});
