// What survives a reload: messages, how far each conversation is complete, the sync cursor and the
// outbox, per user and device. Both stores have the same three methods:
//
//   load()          {syncCursor, conversations, messages, outbox}
//   commit(change)  writes {forget?, messages?, conversations?, syncCursor?, outboxPut?, outboxDelete?}
//                   whole or not at all. A cursor is thus never stored without the messages it stands
//                   for. forget drops everything but the outbox first.
//   close()

/** Keeps everything in memory, for tests and for browsers that refuse IndexedDB. */
export class MemoryStore {
  #messages = new Map();
  #conversations = new Map();
  #outbox = new Map();
  #syncCursor = null;

  async load() {
    return structuredClone({
      syncCursor: this.#syncCursor,
      conversations: [...this.#conversations.values()],
      messages: [...this.#messages.values()],
      outbox: [...this.#outbox.values()],
    });
  }

  async commit(change) {
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

/** Keeps everything in one IndexedDB database per user and device. */
export class IndexedDBStore {
  #db;

  constructor(db) {
    this.#db = db;
  }

  /** Opens the device's database, or rejects where the browser offers none. */
  static async open(userId, deviceId, factory = globalThis.indexedDB) {
    const request = factory.open(databaseName(userId, deviceId), 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("messages", { keyPath: ["conversationId", "seq"] });
      request.result.createObjectStore("conversations", { keyPath: "conversationId" });
      request.result.createObjectStore("meta");
      request.result.createObjectStore("outbox", { keyPath: "clientMsgId" });
    };
    return new IndexedDBStore(await promised(request));
  }

  async load() {
    const tx = this.#db.transaction(STORES, "readonly");
    const [messages, conversations, syncCursor, outbox] = await Promise.all([
      promised(tx.objectStore("messages").getAll()),
      promised(tx.objectStore("conversations").getAll()),
      promised(tx.objectStore("meta").get("syncCursor")),
      promised(tx.objectStore("outbox").getAll()),
    ]);
    return { syncCursor: syncCursor ?? null, conversations, messages, outbox };
  }

  commit({ forget = false, messages = [], conversations = [], syncCursor, outboxPut = [], outboxDelete = [] }) {
    const tx = this.#db.transaction(STORES, "readwrite");
    const done = new Promise((resolve, reject) => {
      tx.oncomplete = () => resolve();
      tx.onabort = () => reject(tx.error ?? new Error("the browser aborted the write"));
    });
    try {
      if (forget) for (const name of ["messages", "conversations", "meta"]) tx.objectStore(name).clear();
      for (const message of messages) tx.objectStore("messages").put(message);
      for (const conversation of conversations) tx.objectStore("conversations").put(conversation);
      if (syncCursor !== undefined) tx.objectStore("meta").put(syncCursor, "syncCursor");
      for (const entry of outboxPut) tx.objectStore("outbox").put(entry);
      for (const clientMsgId of outboxDelete) tx.objectStore("outbox").delete(clientMsgId);
    } catch (error) {
      tx.abort(); // a value that cannot be stored throws; without this the writes before it would stay
      return done.catch(() => Promise.reject(error));
    }
    return done;
  }

  close() {
    this.#db.close();
  }
}

// A user id may hold any printable character; encoding keeps "a/b" + "c" apart from "a" + "b/c".
function databaseName(userId, deviceId) {
  return `inorder/${encodeURIComponent(userId)}/${encodeURIComponent(deviceId)}`;
}

function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another tab keeps an older database open"));
  });
}
