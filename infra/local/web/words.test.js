import { test } from "node:test";
import assert from "node:assert/strict";
import { bodyOf, deliveryOf, eventWords, listOf, membersWords, namesIn, previewOf } from "./words.js";

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
    assert.equal(eventWords({ senderId: "alice", event }, "zoe"), seen);
    assert.equal(eventWords({ senderId: "alice", event }, "alice"), own);
  }
  assert.equal(eventWords({ senderId: "yoda", event: { kind: "dissolve" } }, "zoe"), "yoda dissolved the group");
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
  assert.equal(previewOf(null, "single", "alice"), "No messages yet");
  assert.equal(previewOf(row, "single", "alice"), "two lines");
  assert.equal(previewOf(row, "group", "alice"), "bob: two lines");
  assert.equal(previewOf({ ...row, mine: true }, "group", "bob"), "You: two lines");
  assert.equal(previewOf({ ...row, mine: true, state: "failed" }, "single", "bob"), "Not sent: two lines");
  assert.equal(previewOf({ ...row, recalled: true }, "single", "alice"), "This message was recalled.");
  assert.equal(bodyOf({ ...row, kind: "image", text: "" }, "alice"), "[image]");
});

test("lists and names", () => {
  assert.deepEqual([[], ["a"], ["a", "b"], ["a", "b", "c"]].map(listOf), ["", "a", "a and b", "a, b and c"]);
  assert.deepEqual(namesIn(" bob, carol;bob\n ,dave smith"), ["bob", "carol", "dave smith"]);
  assert.deepEqual([membersWords(1), membersWords(2)], ["1 member", "2 members"]);
});
