// What survives a reload: messages, how far each conversation is complete, the sync cursor and the
// outbox, per user and device. Both stores are a Store as types.js describes it. A cursor is never stored
// without the messages it stands for, and only the tab that claimed the store last changes them: what a
// tab that was frozen or fell behind still wants to write is refused.

/** @import { ConversationRecord, EntryRecord, Message, Saved, Store, StoreChange } from "./types.js" */

const BLOCKED_MS = 5_000;

/** Another tab has claimed the store since. */
export class FencedError extends Error {
  constructor() {
    super("another tab has taken over");
    this.name = "FencedError";
  }
}

/**
 * Keeps everything in memory, for tests and for browsers that refuse IndexedDB.
 * @implements {Store}
 */
export class MemoryStore {
  shared = false;

  /** @type {Map<string, Message>} */
  #messages = new Map();
  /** @type {Map<string, ConversationRecord>} */
  #conversations = new Map();
  /** @type {Map<string, EntryRecord>} */
  #outbox = new Map();
  /** @type {number | null} */
  #syncCursor = null;
  #term = 0;

  /** @param {number} atLeast */
  async claim(atLeast) {
    this.#term = Math.max(this.#term, atLeast) + 1;
    return this.#term;
  }

  /** @returns {Promise<Saved>} */
  async load() {
    return structuredClone({
      syncCursor: this.#syncCursor,
      conversations: [...this.#conversations.values()],
      messages: [...this.#messages.values()],
      outbox: [...this.#outbox.values()],
    });
  }

  /**
   * @param {StoreChange} change
   * @param {number} [term]
   */
  async commit(change, term) {
    if (term !== undefined && term !== this.#term) throw new FencedError();
    const { forget = false, messages = [], conversations = [], syncCursor, outboxPut = [], outboxDelete = [] } = structuredClone(change);
    if (forget) {
      this.#messages.clear();
      this.#conversations.clear();
      this.#syncCursor = null;
    }
    for (const message of messages) this.#messages.set(`${message.seq} ${message.conversationId}`, message);
    for (const conversation of conversations) this.#conversations.set(conversation.conversationId, conversation);
    if (syncCursor !== undefined) this.#syncCursor = syncCursor;
    for (const entry of outboxPut) this.#outbox.set(entry.clientMsgId, entry);
    for (const clientMsgId of outboxDelete) this.#outbox.delete(clientMsgId);
  }

  close() {}
}

const STORES = ["messages", "conversations", "meta", "outbox"];

/**
 * Keeps everything in one IndexedDB database per user and device, which the tabs of an origin share.
 * @implements {Store}
 */
export class IndexedDBStore {
  shared = true;

  #db;
  #lost = "";

  /** @param {IDBDatabase} db use open */
  constructor(db) {
    this.#db = db;
    // A newer version of this code waits in another tab; it would wait as long as this one is open.
    db.onversionchange = () => this.#lose("a newer version of this page is open in another tab; reload this one");
    db.onclose = () => this.#lose("the browser closed the database; reload the page");
  }

  /**
   * Opens the device's database. Rejects where the browser offers none, or if a tab with an older version
   * of this code does not let go of it within a few seconds.
   * @param {string} userId
   * @param {string} deviceId
   * @param {IDBFactory} [factory]
   */
  static async open(userId, deviceId, factory = globalThis.indexedDB) {
    if (!factory) throw new Error("there is no IndexedDB here");
    const request = factory.open(databaseName(userId, deviceId), 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("messages", { keyPath: ["conversationId", "seq"] });
      request.result.createObjectStore("conversations", { keyPath: "conversationId" });
      request.result.createObjectStore("meta");
      request.result.createObjectStore("outbox", { keyPath: "clientMsgId" });
    };
    return new IndexedDBStore(await opened(request));
  }

  /** @param {number} atLeast */
  async claim(atLeast) {
    const tx = this.#begin(["meta"], "readwrite");
    const meta = tx.objectStore("meta");
    const done = ended(tx);
    const last = meta.get("term");
    let term = 0;
    last.onsuccess = () => {
      term = Math.max(last.result ?? 0, atLeast) + 1;
      meta.put(term, "term");
      tx.commit();
    };
    await done;
    return term;
  }

  /** @returns {Promise<Saved>} */
  async load() {
    const tx = this.#begin(STORES, "readonly");
    const [messages, conversations, syncCursor, outbox] = await Promise.all([
      promised(tx.objectStore("messages").getAll()),
      promised(tx.objectStore("conversations").getAll()),
      promised(tx.objectStore("meta").get("syncCursor")),
      promised(tx.objectStore("outbox").getAll()),
    ]);
    return { syncCursor: syncCursor ?? null, conversations, messages, outbox };
  }

  /**
   * @param {StoreChange} change
   * @param {number} [term]
   */
  async commit(change, term) {
    const tx = this.#begin(STORES, "readwrite");
    const done = ended(tx);
    try {
      if (term === undefined) write(tx, change);
      else await this.#asLeader(tx, term, change);
    } catch (error) {
      done.catch(() => {}); // it is this error that tells
      try {
        tx.abort(); // a value that cannot be stored throws; without this the writes before it would stay
      } catch {
        // it was aborted already
      }
      throw error;
    }
    return done;
  }

  close() {
    this.#db.close();
  }

  /**
   * @param {IDBTransaction} tx
   * @param {number} term
   * @param {StoreChange} change
   */
  #asLeader(tx, term, change) {
    return new Promise((resolve, reject) => {
      const last = tx.objectStore("meta").get("term");
      last.onerror = () => reject(last.error);
      last.onsuccess = () => {
        try {
          if (last.result !== term) throw new FencedError();
          resolve(write(tx, change));
        } catch (error) {
          reject(error);
        }
      };
    });
  }

  /**
   * @param {string[]} names
   * @param {IDBTransactionMode} mode
   */
  #begin(names, mode) {
    if (this.#lost) throw new Error(this.#lost);
    return this.#db.transaction(names, mode);
  }

  /** @param {string} why */
  #lose(why) {
    this.#lost = why;
    this.#db.close();
  }
}

// The transaction is told that nothing more follows. It would find out once this tab has heard that all is
// written, which a tab that is frozen in between does not, and until then no other tab could write.
/**
 * @param {IDBTransaction} tx
 * @param {StoreChange} change
 */
function write(tx, { forget = false, messages = [], conversations = [], syncCursor, outboxPut = [], outboxDelete = [] }) {
  if (forget) {
    for (const name of ["messages", "conversations"]) tx.objectStore(name).clear();
    tx.objectStore("meta").delete("syncCursor");
  }
  for (const message of messages) tx.objectStore("messages").put(message);
  for (const conversation of conversations) tx.objectStore("conversations").put(conversation);
  if (syncCursor !== undefined) tx.objectStore("meta").put(syncCursor, "syncCursor");
  for (const entry of outboxPut) tx.objectStore("outbox").put(entry);
  for (const clientMsgId of outboxDelete) tx.objectStore("outbox").delete(clientMsgId);
  tx.commit();
}

// A user id may hold any printable character; encoding keeps "a/b" + "c" apart from "a" + "b/c".
/**
 * @param {string} userId
 * @param {string} deviceId
 */
function databaseName(userId, deviceId) {
  return `inorder/${encodeURIComponent(userId)}/${encodeURIComponent(deviceId)}`;
}

/**
 * @param {IDBOpenDBRequest} request
 * @returns {Promise<IDBDatabase>}
 */
function opened(request) {
  return new Promise((resolve, reject) => {
    let late = false;
    request.onsuccess = () => (late ? request.result.close() : resolve(request.result));
    request.onerror = () => reject(request.error);
    // An older version is open elsewhere. It is told to let go, which takes it a moment.
    request.onblocked = () =>
      setTimeout(() => {
        late = true;
        reject(new Error("another tab keeps an older database open; close the other tabs of this page"));
      }, BLOCKED_MS);
  });
}

/**
 * @param {IDBTransaction} tx
 * @returns {Promise<void>}
 */
function ended(tx) {
  return new Promise((resolve, reject) => {
    tx.oncomplete = () => resolve();
    tx.onabort = () => reject(tx.error ?? new Error("the browser aborted the write"));
  });
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
