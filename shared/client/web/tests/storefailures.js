// Checks what an IndexedDBStore does when the browser's database fails. Runs in a browser, on a real one.

import { IndexedDBStore } from "../store.js";

const entry = (clientMsgId) => ({ outboxPut: [{ clientMsgId }] });

export async function checkStoreFailures() {
  let users = 0;
  for (const check of [closed, aborted, closedForEver, full, deleted, deletedWhileClosed]) {
    const userId = `failures ${++users}`;
    const connections = [];
    const store = await IndexedDBStore.open(userId, "web", watched(connections));
    await store.commit(entry("first"));
    await check(store, connections, `inorder/${encodeURIComponent(userId)}/web`).catch((error) => {
      throw new Error(`${check.name}: ${error.message}`);
    });
    store.close();
  }
}

// A factory that shows each connection, before the store has it.
function watched(connections) {
  return {
    open(...args) {
      const request = indexedDB.open(...args);
      request.addEventListener("success", () => connections.push(request.result));
      return request;
    },
  };
}

async function closed(store, connections) {
  connections[0].close();
  await store.commit(entry("second"));
  equal(await stored(store), "first,second", "what is written after the browser closed the database is stored");
  connections[1].close();
  await Promise.all([store.commit(entry("third")), store.commit(entry("fourth")), store.load()]);
  equal(await stored(store), "first,fourth,second,third", "each time");
  equal(connections.length, 3, "and one new connection serves all");
}

async function aborted(store, connections) {
  const [db] = connections;
  const begin = db.transaction.bind(db);
  db.transaction = (...args) => {
    const tx = begin(...args);
    tx.abort();
    return tx;
  };
  await store.commit(entry("second"));
  db.transaction = (...args) => {
    const tx = begin(...args);
    queueMicrotask(() => tx.abort());
    return tx;
  };
  await store.commit(entry("third"));
  const term = await store.claim(0);
  await store.commit(entry("fourth"), term);
  equal(await stored(store), "first,fourth,second,third", "what the browser aborted is written once more");
}

async function closedForEver(store, connections) {
  connections.push = (db) => {
    db.transaction = () => fail("UnknownError");
    return Array.prototype.push.call(connections, db);
  };
  connections[0].close();
  equal(await outcome(store.commit(entry("second"))), "UnknownError: failed", "it is given up");
  equal(connections.length, 2, "after one more attempt");
}

async function full(store, connections) {
  connections[0].transaction = () => fail("QuotaExceededError");
  equal(await outcome(store.commit(entry("second"))), "QuotaExceededError: failed", "what is no passing failure is told");
  equal(connections.length, 1, "at once");
}

async function deleted(store, connections, name) {
  await promised(indexedDB.deleteDatabase(name));
  equal(await outcome(store.commit(entry("second"))), "Error: what this device had stored was deleted; reload the page", "after a deletion");
  equal(connections.length, 1, "it is not made anew");
}

async function deletedWhileClosed(store, connections, name) {
  connections[0].close();
  await promised(indexedDB.deleteDatabase(name));
  equal(await outcome(store.commit(entry("second"))), "Error: what this device had stored was deleted; reload the page", "after a deletion");
  equal((await indexedDB.databases()).some((database) => database.name === name), false, "it is not made anew");
}

function fail(name) {
  throw new DOMException("failed", name);
}

async function stored(store) {
  return (await store.load()).outbox.map(({ clientMsgId }) => clientMsgId).join();
}

function outcome(promise) {
  return promise.then(() => "written", ({ name, message }) => `${name}: ${message}`);
}

function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function equal(got, want, what) {
  if (got !== want) throw new Error(`${what}: got ${got}, want ${want}`);
}
