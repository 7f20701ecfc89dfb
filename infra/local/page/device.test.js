import { test } from "node:test";
import assert from "node:assert/strict";
import { deviceOf } from "./device.js";

function fakeStorage() {
  const values = new Map();
  return () => ({ getItem: (key) => values.get(key) ?? null, setItem: (key, value) => values.set(key, value) });
}

const hash = (text) => new URLSearchParams(text);

test("the tabs of a browser are one device, whoever uses them and over reloads", () => {
  const storage = fakeStorage();
  const first = deviceOf(hash("user=alice"), storage);
  assert.match(first, /^web-[0-9a-f]{8}$/);
  assert.equal(deviceOf(hash("user=alice"), storage), first);
  assert.equal(deviceOf(hash("user=bob"), storage), first);
  assert.notEqual(deviceOf(hash("user=alice"), fakeStorage()), first);
});

test("a tab can be a device of its own", () => {
  const storage = fakeStorage();
  const shared = deviceOf(hash("user=alice"), storage);
  const second = deviceOf(hash("user=alice&device=new"), storage);
  assert.match(second, /^web-[0-9a-f]{8}$/);
  assert.notEqual(second, shared);
  assert.notEqual(deviceOf(hash("device=new"), storage), second);
  assert.equal(deviceOf(hash(`user=alice&device=${second}`), storage), second);
  assert.equal(deviceOf(hash("user=alice"), storage), shared, "which the others stay out of");
});

test("what is no device id is not used as one", () => {
  const storage = fakeStorage();
  for (const bad of ["", "a b", "a/b", "x".repeat(65)]) assert.equal(deviceOf(hash(new URLSearchParams({ device: bad })), storage), deviceOf(hash(""), storage));
});

test("without storage a tab is on its own", () => {
  const none = () => {
    throw new DOMException("no", "SecurityError");
  };
  assert.match(deviceOf(hash("user=alice"), none), /^web-/);
});
