import { test } from "node:test";
import assert from "node:assert/strict";
import { claimDevice } from "./device.js";

function fakeStorage(copyOf) {
  const values = new Map(copyOf?.values);
  return { values, getItem: (key) => values.get(key) ?? null, setItem: (key, value) => values.set(key, value) };
}

// Locks that are never given back, as those of an open tab.
function fakeLocks() {
  const held = new Set();
  return {
    held,
    request: (name, { signal }, granted) => {
      if (!held.has(name)) {
        held.add(name);
        return granted();
      }
      return new Promise((_, reject) => {
        const awake = setTimeout(() => {}, 10_000); // Node does not wait for AbortSignal.timeout alone
        signal.addEventListener("abort", () => {
          clearTimeout(awake);
          reject(signal.reason);
        });
      });
    },
  };
}

test("a tab keeps its device over a reload", async () => {
  const storage = fakeStorage();
  const first = await claimDevice({ storage, locks: fakeLocks() });
  assert.match(first, /^web-[0-9a-f]{8}$/);
  assert.equal(await claimDevice({ storage, locks: fakeLocks() }), first);
});

test("a duplicated tab becomes a device of its own", async () => {
  const locks = fakeLocks();
  const storage = fakeStorage();
  const first = await claimDevice({ storage, locks, waitMs: 5 });
  const copy = fakeStorage(storage);
  const second = await claimDevice({ storage: copy, locks, waitMs: 5 });
  assert.notEqual(second, first);
  assert.equal(locks.held.size, 2);
  assert.equal(copy.getItem("inorder.device"), second);
});

test("without locks the stored id is used", async () => {
  const storage = fakeStorage();
  const first = await claimDevice({ storage, locks: null });
  assert.equal(await claimDevice({ storage, locks: null }), first);
});
