import { test } from "node:test";
import assert from "node:assert/strict";
import { bodyOf, clockWords, dayWords, daysBetween, deliveryOf, eventWords, failureOf, lineOf, listOf, membersWords, namesIn, nextDay, plain, previewOf, problemWords, said, shownPart, whenWords, whyWords } from "./words.js";

const read = (parts) => parts.map(shownPart).join("");

test("events in words", () => {
  const cases = [
    [{ kind: "members", added: ["alice", "bob"], owner: "alice", title: "Trip" }, "alice made the group “Trip” with bob", "You made the group “Trip” with bob"],
    [{ kind: "members", added: ["alice"], owner: "alice", title: "Trip" }, "alice made the group “Trip”", "You made the group “Trip”"],
    [{ kind: "members", added: ["bob", "carol", "dave"] }, "alice added bob, carol and dave", "You added bob, carol and dave"],
    [{ kind: "members", removed: ["bob"] }, "alice removed bob", "You removed bob"],
    [{ kind: "members", removed: ["alice"] }, "alice left", "You left"],
    [{ kind: "members", removed: ["alice"], owner: "bob" }, "alice left, and bob owns the group now", "You left, and bob owns the group now"],
    [{ kind: "members", member: "bob", role: "admin" }, "alice made bob an admin", "You made bob an admin"],
    [{ kind: "members", member: "bob", role: "member" }, "alice made bob a plain member", "You made bob a plain member"],
    [{ kind: "members", member: "bob", role: "owner", owner: "bob" }, "alice made bob the owner", "You made bob the owner"],
    [{ kind: "title", title: "Journey" }, "alice named the group “Journey”", "You named the group “Journey”"],
    [{ kind: "dissolve" }, "alice dissolved the group", "You dissolved the group"],
    [{ kind: "news" }, "Something changed", "Something changed"],
  ];
  for (const [event, seen, own] of cases) {
    assert.equal(read(eventWords({ senderId: "alice", event }, "zoe")), seen);
    assert.equal(read(eventWords({ senderId: "alice", event }, "alice")), own);
  }
  assert.equal(read(eventWords({ senderId: "yoda", event: { kind: "dissolve" } }, "zoe")), "yoda dissolved the group");
  assert.equal(read(eventWords({ senderId: "yoda", event: { kind: "dissolve" } }, "you")), "yoda dissolved the group", "who is called you is not you");
});

test("events of the product in words", () => {
  const cases = [
    [{ kind: "members", added: ["alice", "bob"] }, "you and bob were added", "alice and bob were added"],
    [{ kind: "members", added: ["alice"] }, "you were added", "alice was added"],
    [{ kind: "members", removed: ["bob"] }, "bob was removed", "bob was removed"],
    [{ kind: "dissolve" }, "This group was dissolved", "This group was dissolved"],
    [{ kind: "erase", erased: "bob" }, "What bob had written was deleted", "What bob had written was deleted"],
    [{ kind: "news" }, "Something changed", "Something changed"],
  ];
  for (const [event, own, seen] of cases) {
    assert.equal(read(eventWords({ senderId: "system", event }, "alice")), own.replace(/^you/, "You"));
    assert.equal(read(eventWords({ senderId: "system", event }, "zoe")), seen);
  }
});

test("names are parts of their own", () => {
  const event = { kind: "members", added: ["alice", "b\u202Eob"], title: "Tr\u202Eip" };
  assert.deepEqual(eventWords({ senderId: "alice", event }, "zoe"), [{ name: "alice" }, " made the group “", { name: "Tr\u202Eip" }, "” with ", { name: "b\u202Eob" }]);
  assert.equal(plain(said`by ${{ name: "b\u2069\u202Eob" }}!`), "by \u2068bob\u2069!");
  assert.deepEqual(said`${""}a${["b", { name: "c" }]}${"d"}e`, ["ab", { name: "c" }, "de"]);
  assert.deepEqual(previewOf({ kind: "text", senderId: "bob", text: "hi" }, "group", "alice"), [{ name: "bob" }, ": ", { text: "hi" }]);
});

test("how far a message is", () => {
  const row = { kind: "text", recalled: false, state: "sent", receipt: null, readBy: [], audience: 1 };
  const cases = [
    [{ state: "sending" }, "", "sending"],
    [{ state: "failed" }, "", ""],
    [{}, "✓", "sent"],
    [{ receipt: "delivered" }, "✓✓", "delivered"],
    [{ receipt: "read", readBy: ["bob"] }, "✓✓", "read"],
    [{ readBy: ["bob"], audience: 3 }, "✓ 1/3", "read by 1 of 3"],
    [{ receipt: "delivered", readBy: ["bob"], audience: 3 }, "✓✓ 1/3", "read by 1 of 3"],
    [{ recalled: true }, "", ""],
    [{ kind: "event" }, "", ""],
    [{ state: null }, "", ""],
  ];
  for (const [extra, mark, words] of cases) assert.deepEqual(deliveryOf({ ...row, ...extra }), { mark, words }, JSON.stringify(extra));
});

test("previews and bodies", () => {
  const row = { kind: "text", mine: false, senderId: "bob", text: "two\n lines", recalled: false };
  const preview = (...args) => read(previewOf(...args));
  assert.equal(preview(null, "single", "alice"), "No messages yet");
  assert.equal(preview(row, "single", "alice"), "two lines");
  assert.equal(preview(row, "group", "alice"), "bob: two lines");
  assert.equal(preview({ ...row, mine: true }, "group", "bob"), "You: two lines");
  assert.equal(preview({ ...row, mine: true, state: "failed" }, "single", "bob"), "Not sent: two lines");
  assert.equal(preview({ ...row, recalled: true }, "single", "alice"), "This message was recalled.");
  assert.equal(preview({ ...row, text: "👍🏽".repeat(200) }, "single", "alice"), `${"👍🏽".repeat(100)}…`);
  assert.equal(read(lineOf({ ...row, text: "a".repeat(20) }, "alice", 10)), `${"a".repeat(10)}…`);
  assert.equal(read(bodyOf({ ...row, kind: "image", text: "" }, "alice")), "Picture");
  assert.equal(read(bodyOf({ ...row, kind: "hologram", text: "" }, "alice")), "A message without a text");
});

test("what went wrong is told without codes", () => {
  const codes = ["BAD_REQUEST", "UNKNOWN_ACTION", "TOO_LARGE", "NOT_FOUND", "FORBIDDEN", "IDEMPOTENCY_CONFLICT", "VERSION_CONFLICT", "TOO_LATE", "DISSOLVED", "LIMIT", "BUSY", "INTERNAL"];
  codes.push("TIMEOUT", "DISCONNECTED", "PROTOCOL", "OUTBOX_FULL", "OUTDATED", "CLOSED", "LOST", "", "__proto__", "constructor");
  for (const code of codes) {
    for (const doing of ["send", "edit", "recall", "group", "look"]) {
      const words = whyWords({ code, message: "seq 7: NOT_FOUND after 2m0s" }, doing);
      assert.match(words, /^[a-z][a-z ,']+$/, `${code} ${doing}`);
    }
  }
  assert.equal(whyWords({ code: "TOO_LATE" }, "edit"), "the time for that is over");
  assert.equal(problemWords(new RangeError("the message is empty"), "send"), "the message is empty");
  assert.equal(problemWords({ code: "OUTBOX_FULL", message: "1000 messages" }, "send"), "too many messages wait to be sent already");
  assert.notEqual(whyWords({ code: "NOT_FOUND" }, "send"), whyWords({ code: "NOT_FOUND" }, "edit"));
});

test("what is not on the server", () => {
  const error = { code: "FORBIDDEN", message: "", retryable: false };
  const cases = [
    [{ state: "sent" }, null],
    [{ state: null, lost: false }, null],
    [{ state: "failed", error }, { words: "Not sent: you may not do that.", again: true, aside: true }],
    [{ state: "failed", error, kind: "event" }, { words: "Not done: you may not do that.", again: true, aside: true }],
    [{ state: "failed", lost: true, error: { code: "LOST", retryable: true } }, { words: "The server does not have this any more.", again: true, aside: true }],
    [{ state: "failed", lost: true, error: { code: "LOST", retryable: false } }, { words: "The server does not have this any more.", again: false, aside: false }],
    [{ state: null, lost: true }, { words: "Only this device still has this.", again: false, aside: false }],
  ];
  for (const [row, want] of cases) assert.deepEqual(failureOf({ kind: "text", error: null, ...row }), want, JSON.stringify(row));
});

test("days and times", () => {
  const at = (...args) => new Date(...args).getTime();
  const now = at(2026, 10, 30, 0, 30); // a Monday
  const cases = [
    [at(2026, 10, 30, 0, 0), "Today", clockWords(at(2026, 10, 30, 0, 0))],
    [at(2026, 10, 29, 23, 59), "Yesterday", "Yesterday"],
    [at(2026, 10, 28, 23, 59), "Saturday", "Sat"],
    [at(2026, 10, 24, 12), "Tuesday", "Tue"],
    [at(2026, 10, 23, 12), "23 November", "23 Nov"],
    [at(2025, 11, 31, 12), "31 December 2025", "31 Dec 2025"],
    [at(2026, 11, 1, 12), "1 December", "1 Dec"], // a clock that is ahead
    [at(2027, 0, 1), "1 January 2027", "1 Jan 2027"],
  ];
  for (const [time, day, when] of cases) assert.deepEqual([dayWords(time, now), whenWords(time, now)], [day, when]);
  assert.equal(nextDay(now), at(2026, 11, 1));
  for (let day = 1; day < 366; day++) {
    const [midnight, next] = [at(2026, 0, day), at(2026, 0, day + 1)];
    assert.deepEqual([nextDay(midnight), daysBetween(midnight, next), daysBetween(next - 1, next)], [next, 1, 1]); // also where a day has 23 hours
  }
});

test("lists and names", () => {
  assert.deepEqual([[], ["a"], ["a", "b"], ["a", "b", "c"]].map((names) => listOf(names).join("")), ["", "a", "a and b", "a, b and c"]);
  assert.deepEqual(namesIn(" bob, carol;bob\n ,dave smith"), ["bob", "carol", "dave smith"]);
  assert.deepEqual([membersWords(1), membersWords(2)], ["1 member", "2 members"]);
});
