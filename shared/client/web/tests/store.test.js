import { test } from "node:test";
import assert from "node:assert/strict";
import { IndexedDBStore, MemoryStore } from "../store.js";
import { checkStore } from "./storecontract.js";

test("MemoryStore keeps the store contract", () => checkStore(new MemoryStore(), async (store) => store));

test("a database that never opens is not waited for, and let go of if it opens in the end", async () => {
  const request = {};
  await assert.rejects(IndexedDBStore.open("alice", "web", { open: () => request }, 5), /does not answer/);
  let closed = false;
  request.result = { close: () => (closed = true) };
  request.onsuccess();
  assert.equal(closed, true);
});

test("a database that an older version keeps open says so", async () => {
  const request = {};
  const opened = IndexedDBStore.open("alice", "web", { open: () => request }, 5);
  request.onblocked();
  await assert.rejects(opened, /another tab keeps an older database open/);
});
