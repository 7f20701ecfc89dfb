// What survives a reload: messages, how far each conversation is complete, the sync cursor and the outbox, per user and
// device. Both stores implement Store of types.js. A cursor is never stored without the messages it stands for, and
// only the tab that claimed the store last changes them: what a tab that was frozen or fell behind still tries to write
// is refused.

/** @import { ConversationRecord, EntryRecord, Lost, Message, Saved, Store, StoreChange } from "./types.js" */

/** How long a browser may take to open a database, in ms; then it counts as one that never will. */
const OPEN_MS = 10_000;

// The errors of a database connection that the browser has closed or lost, as iOS does to pages in the background.
// Errors of the data or the disk have other names.
const PASSING = new Set(["AbortError", "InvalidStateError", "UnknownError"]);

const OUTDATED = "a newer version of this page is open in another tab; reload this one";
const DELETED = "what this device had stored was deleted; reload the page";

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
  /** @type {Lost[]} */
  #lost = [];
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
      lost: this.#lost,
    });
  }

  /** @param {StoreChange} change @param {number} [term] */
  async commit(change, term) {
    if (term !== undefined && term !== this.#term) throw new FencedError();
    const { forget = false, messages = [], conversations = [], syncCursor, outboxPut = [], outboxDelete = [], lost } = structuredClone(change);
    if (forget) {
      this.#messages.clear();
      this.#conversations.clear();
      this.#syncCursor = null;
      this.#lost = [];
    }
    if (lost) this.#lost = lost;
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

  /** @type {IDBDatabase | null} */
  #db = null;
  #reopen;
  /** @type {Promise<IDBDatabase> | null} */
  #opening = null;
  #ended = "";

  /**
   * @param {IDBDatabase} db use open
   * @param {() => Promise<IDBDatabase>} reopen opens it again
   */
  constructor(db, reopen) {
    this.#reopen = reopen;
    this.#hold(db);
  }

  /**
   * Opens the device's database. Rejects if the browser has none, if it does not answer in time, and if a tab with an
   * older version of this code does not let go of it.
   * @param {string} userId @param {string} deviceId @param {IDBFactory} [factory] @param {number} [patienceMs]
   */
  static async open(userId, deviceId, factory = globalThis.indexedDB, patienceMs = OPEN_MS) {
    if (!factory) throw new Error("there is no IndexedDB here");
    const name = databaseName(userId, deviceId);
    const db = await opened(factory.open(name, 1), patienceMs, create);
    return new IndexedDBStore(db, () => opened(factory.open(name, 1), patienceMs));
  }

  /** @param {number} atLeast */
  async claim(atLeast) {
    return this.#attempt((db) => claim(db, atLeast));
  }

  /** @returns {Promise<Saved>} */
  async load() {
    return this.#attempt(load);
  }

  /** @param {StoreChange} change @param {number} [term] */
  async commit(change, term) {
    return this.#attempt((db) => commit(db, change, term));
  }

  close() {
    this.#end("the store is closed");
  }

  // A connection that the browser has closed is opened again, once; whatever is done may be done twice. The work begins
  // synchronously if there is a connection, as the page may be about to go.
  /** @template T @param {(db: IDBDatabase) => Promise<T>} work */
  async #attempt(work) {
    const db = this.#db ?? (await this.#connected());
    try {
      return await work(db);
    } catch (thrown) {
      if (!PASSING.has(/** @type {Error} */ (thrown).name)) throw thrown;
      this.#drop(db);
      return work(this.#db ?? (await this.#connected()));
    }
  }

  async #connected() {
    if (this.#ended) throw new Error(this.#ended);
    this.#opening ??= this.#reopen()
      .then((db) => this.#hold(db))
      .finally(() => (this.#opening = null));
    return this.#opening;
  }

  /** @param {IDBDatabase} db */
  #hold(db) {
    if (this.#ended) db.close();
    else this.#db = db;
    // A tab that deletes or upgrades the database waits as long as this connection is open.
    db.onversionchange = ({ newVersion }) => this.#end(newVersion === null ? DELETED : OUTDATED);
    db.onclose = () => this.#drop(db);
    return db;
  }

  /** @param {IDBDatabase} db */
  #drop(db) {
    if (this.#db === db) this.#db = null;
    db.close();
  }

  /** @param {string} why */
  #end(why) {
    this.#ended ||= why;
    if (this.#db) this.#drop(this.#db);
  }
}

/** @param {IDBDatabase} db */
function create(db) {
  db.createObjectStore("messages", { keyPath: ["conversationId", "seq"] });
  db.createObjectStore("conversations", { keyPath: "conversationId" });
  db.createObjectStore("meta");
  db.createObjectStore("outbox", { keyPath: "clientMsgId" });
}

/** @param {IDBDatabase} db @param {number} atLeast */
async function claim(db, atLeast) {
  const tx = db.transaction(["meta"], "readwrite");
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

/** @param {IDBDatabase} db @returns {Promise<Saved>} */
async function load(db) {
  const tx = db.transaction(STORES, "readonly");
  const [messages, conversations, syncCursor, outbox, lost] = await Promise.all([
    promised(tx.objectStore("messages").getAll()),
    promised(tx.objectStore("conversations").getAll()),
    promised(tx.objectStore("meta").get("syncCursor")),
    promised(tx.objectStore("outbox").getAll()),
    promised(tx.objectStore("meta").get("lost")),
  ]);
  return { syncCursor: syncCursor ?? null, conversations, messages, outbox, lost: lost ?? [] };
}

/** @param {IDBDatabase} db @param {StoreChange} change @param {number} [term] */
async function commit(db, change, term) {
  const tx = db.transaction(STORES, "readwrite");
  const done = ended(tx);
  try {
    if (term === undefined) write(tx, change);
    else await writeAsLeader(tx, term, change);
  } catch (error) {
    done.catch(() => {}); // the error below says it
    try {
      tx.abort(); // a value that cannot be stored throws; without this the writes before it would stay
    } catch {
      // it was aborted already
    }
    throw error;
  }
  return done;
}

/** @param {IDBTransaction} tx @param {number} term @param {StoreChange} change */
function writeAsLeader(tx, term, change) {
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

// It ends with commit, which says that nothing follows. Without it the transaction ends once this tab has heard that
// all is written; a tab that is frozen in between does not, and until then no other tab could write.
/** @param {IDBTransaction} tx @param {StoreChange} change */
function write(tx, { forget = false, messages = [], conversations = [], syncCursor, outboxPut = [], outboxDelete = [], lost }) {
  if (forget) {
    for (const name of ["messages", "conversations"]) tx.objectStore(name).clear();
    for (const key of ["syncCursor", "lost"]) tx.objectStore("meta").delete(key);
  }
  if (lost) tx.objectStore("meta").put(lost, "lost");
  for (const message of messages) tx.objectStore("messages").put(message);
  for (const conversation of conversations) tx.objectStore("conversations").put(conversation);
  if (syncCursor !== undefined) tx.objectStore("meta").put(syncCursor, "syncCursor");
  for (const entry of outboxPut) tx.objectStore("outbox").put(entry);
  for (const clientMsgId of outboxDelete) tx.objectStore("outbox").delete(clientMsgId);
  tx.commit();
}

// A user id may hold any printable character; encoding keeps "a/b" + "c" apart from "a" + "b/c".
/** @param {string} userId @param {string} deviceId */
function databaseName(userId, deviceId) {
  return `inorder/${encodeURIComponent(userId)}/${encodeURIComponent(deviceId)}`;
}

// create makes a database that is not there. Without create the database was deleted meanwhile, and a new one would not
// get all that this tab holds.
/**
 * @param {IDBOpenDBRequest} request @param {number} patienceMs @param {(db: IDBDatabase) => void} [create]
 * @returns {Promise<IDBDatabase>}
 */
function opened(request, patienceMs, create) {
  return new Promise((resolve, reject) => {
    let why = "the browser's database does not answer; close the other tabs of this page, or restart the browser";
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      reject(new Error(why));
    }, patienceMs);
    /** @param {() => void} how */
    const settle = (how) => (clearTimeout(timer), how());
    request.onsuccess = () => settle(() => (late ? request.result.close() : resolve(request.result)));
    request.onupgradeneeded = () => {
      if (create && !late) create(request.result);
      else settle(() => (request.transaction?.abort(), reject(new Error(DELETED))));
    };
    request.onerror = () => settle(() => reject(request.error));
    // An older version is open in another tab. It is told to let go, which takes a moment.
    request.onblocked = () => (why = "another tab keeps an older database open; close the other tabs of this page");
  });
}

/** @param {IDBTransaction} tx @returns {Promise<void>} */
function ended(tx) {
  return new Promise((resolve, reject) => {
    tx.oncomplete = () => resolve();
    tx.onabort = () => reject(tx.error ?? new DOMException("the browser aborted the write", "AbortError"));
  });
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
