// The client as programs use it, the same in each tab of a device: what can be read, and what the user does. role.js
// knows which tab does the work.

import { checkKey, checkOptions, checkTitle, checkUsers, checkedContent, jsonCopy, socketURL } from "./checks.js";
import { RequestError, systemClock } from "./connection.js";
import { mayDo, rowIn } from "./conversations.js";
import { LIMITS } from "./engine.js";
import { NEW_KEY, TO_KEY } from "./model.js";
import { newEntry } from "./outbox.js";
import { Readings } from "./readings.js";
import { Role } from "./role.js";
import { IndexedDBStore, MemoryStore } from "./store.js";
import { frozen } from "./views.js";

/**
 * @import { Limits, Timing } from "./engine.js"
 * @import { watchNetwork } from "./network.js"
 * @import { TabTiming } from "./role.js"
 * @import { Tabs } from "./tabs.js"
 * @import { Address, Clock, Content, Conversation, ConversationKey, Member, NewMessage, Row, Store } from "./types.js"
 */

/**
 * Who this device is and where the server is.
 * @typedef {object} Options
 * @property {string} url the server's, such as wss://abc.execute-api.eu-west-1.amazonaws.com/v1; or relative to the
 *   page, such as /v1, where the page's host passes connections on
 * @property {string} userId the user whose token it is: its sub, or whom else the server takes it for. It cannot be
 *   left out: a device shows what it has, and accepts messages to send, before it has ever been connected
 * @property {string} deviceId 1 to 64 of A-Z a-z 0-9 . _ and -, the same after a reload and in all tabs that are to
 *   share a connection
 * @property {() => Promise<string> | string} token returns a JWT, or another token that the server accepts: if it
 *   cannot be read here, the server says whose it is. It is called before each connect, in the tab that leads. If it
 *   throws, the attempt has failed; an error with `permanent: true` ends the attempts until setOffline(false).
 * @property {Store} [store] IndexedDB, or memory where the browser offers none
 * @property {Tabs | null} [tabs] how tabs find each other; null for a tab that is alone
 * @property {typeof globalThis.WebSocket} [WebSocket]
 * @property {(message: string) => void} [log] receives what a program need not act on; console.warn if left out
 * @property {typeof watchNetwork} [network] for tests
 * @property {Clock} [clock] for tests
 * @property {() => number} [random] for tests
 * @property {Timing & TabTiming} [timing] in ms
 * @property {Limits} [limits]
 */

/**
 * Opens a device: all tabs of an origin that open the same url, userId and deviceId are one, with one connection and
 * one store. Resolves once there is something to show, which needs no connection; where the browser has no storage,
 * storeError of the result says so, and all is kept in memory. A TypeError says which option is wrong.
 * @param {Options} options
 * @returns {Promise<InorderClient>}
 */
export async function open(options) {
  checkOptions(options ?? {});
  let store = options.store;
  let storeError = null;
  try {
    store ??= await IndexedDBStore.open(options.userId, options.deviceId);
  } catch (error) {
    store = new MemoryStore();
    storeError = /** @type {Error} */ (error);
  }
  const client = new InorderClient({ ...options, url: socketURL(options.url), store, storeError });
  await client.start();
  return client;
}

/**
 * One device of one user, as a tab holds it. See open.
 *
 * What the user asks for (send, createGroup, addMembers, …, recall, edit) is put into the outbox; the method resolves
 * to its clientMsgId once it is stored. It is sent, and sent again, until the server answers. Until then, and if it is
 * refused, messages shows it.
 *
 * Emits "change" whenever anything shown may have changed; see subscribe. Reading is synchronous, and returns the same
 * objects until what they say changes. They are frozen.
 *
 * Emits "message", a CustomEvent whose detail is a NewMessage, for each message of others that arrives, in each tab of
 * the device, after the "change" it comes with; not for what was there when the device was new.
 */
export class InorderClient extends EventTarget {
  #role;
  #clock;
  #log;
  #outboxLimit;
  #readings;

  /**
   * Makes a client that does nothing before start. Programs call open.
   * @param {Options & {store: Store, storeError?: Error | null}} options
   */
  constructor(options) {
    super();
    const { userId, deviceId, clock = systemClock, log = (message) => console.warn(message), limits = {} } = options;
    this.userId = userId;
    this.deviceId = deviceId;
    this.#clock = clock;
    this.#log = log;
    this.#outboxLimit = limits.outbox ?? LIMITS.outbox;
    this.#role = new Role({ ...options, clock, log }, {
      changed: () => this.#changed(),
      news: (conversationId, seqs) => this.#tell(conversationId, seqs),
    });
    this.#readings = new Readings(this.#role, clock, () => this.#changed());
  }

  get state() {
    return this.#role.state;
  }

  /**
   * The reason of the state, for people. If the server sent this device away for good, it is the goodbye's: "replaced"
   * by a newer connection of this device, or one of too many "devices". "outdated" says that a newer version of this
   * code runs in another tab and this one has to be reloaded; "closed" that close was called.
   */
  get detail() {
    return this.#role.detail;
  }

  /** The error that ended persistence, or null. From then on everything lives in memory only. */
  get storeError() {
    return this.#role.storeError;
  }

  /** Whether this tab has the device's connection. */
  get leads() {
    return this.#role.leads;
  }

  /** Begins; open calls it. */
  async start() {
    await this.#role.start();
  }

  /**
   * Ends this tab's part, and resolves once all is written. Other tabs go on, and one of them leads. The outbox stays.
   *
   * With forget, for a machine that others use too, all tabs of the device end and all that they have stored is wiped,
   * also what was not sent. Rejects if that fails.
   * @param {{forget?: boolean}} [options]
   */
  async close({ forget = false } = {}) {
    await this.#role.close(forget);
  }

  /**
   * Drops the device's connection and stays away, or comes back; for all of its tabs.
   * @param {boolean} offline
   */
  setOffline(offline) {
    this.#role.setOffline(Boolean(offline));
  }

  /**
   * Connects now if it waits to, and checks whether an open connection still works. The client does so by itself when
   * the browser says that the network is back, and when the page comes into sight.
   */
  retryNow() {
    this.#role.calls.do("retryNow");
  }

  /**
   * Calls onChange whenever anything shown may have changed, until the returned function is called. It needs no `this`,
   * and fits React's useSyncExternalStore with any of the methods below.
   * @param {() => void} onChange
   * @returns {() => void}
   */
  subscribe = (onChange) => {
    const listener = () => onChange();
    this.addEventListener("change", listener);
    return () => this.removeEventListener("change", listener);
  };

  /**
   * @overload
   * @param {"message"} type
   * @param {(event: CustomEvent<NewMessage>) => void} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @returns {void}
   */
  /**
   * @overload
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @returns {void}
   */
  /**
   * As every EventTarget has it.
   * @param {string} type
   * @param {any} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
  }

  // ---- what can be read ----

  /**
   * The key of the conversation with a user, known to the server or not.
   * @param {string} userId
   * @returns {ConversationKey}
   */
  keyFor(userId) {
    if (typeof userId !== "string") throw new TypeError("a user id has to be a string");
    return this.#role.model.keyFor(userId);
  }

  /**
   * The key a conversation has now; it changes when the server names the conversation.
   * @param {ConversationKey} key
   */
  currentKey(key) {
    checkKey(key);
    return this.#role.model.currentKey(key);
  }

  /**
   * The conversations, most recent first.
   * @returns {readonly Conversation[]}
   */
  conversations() {
    return this.#readings.conversations();
  }

  /**
   * One conversation as in conversations, also for a key that nothing was sent to yet.
   * @param {ConversationKey} key
   * @returns {Conversation}
   */
  conversation(key) {
    return this.#readings.conversation(this.currentKey(key));
  }

  /**
   * The last `limit` rows of a conversation in order; what the server has not numbered yet is at the end.
   * @param {ConversationKey} key
   * @param {number} [limit]
   * @returns {readonly Row[]}
   */
  messages(key, limit = Infinity) {
    return this.#readings.messages(this.currentKey(key), limit);
  }

  /**
   * The members of a group, or null while unknown; show makes them known.
   * @param {ConversationKey} key
   * @returns {readonly Member[] | null}
   */
  members(key) {
    return this.#readings.members(this.currentKey(key));
  }

  /**
   * Whether we may do something in a group, as far as is known; see may in rights.js.
   * @param {ConversationKey} key
   * @param {string} action
   * @param {string} [target]
   */
  may(key, action, target) {
    checkKey(key);
    return mayDo(this.#role.model, key, action, target);
  }

  // ---- what the user does ----

  /**
   * Sends a message, as the answer to the row replyTo if there is one. Resolves to its clientMsgId once it is stored. A
   * RangeError says what is wrong with the text, a TypeError what JSON cannot hold.
   * @param {ConversationKey} key
   * @param {string | Content} content
   * @param {{replyTo?: Pick<Row, "seq" | "messageId"> | null}} [options]
   */
  async send(key, content, { replyTo = null } = {}) {
    const { type, text, data } = checkedContent(content);
    const fields = { messageType: type, ...(data && { data }), ...(replyTo && { replyTo: { seq: replyTo.seq, messageId: replyTo.messageId } }) };
    return this.#ask("send", addressOf(this.currentKey(key)), fields, text);
  }

  /**
   * Makes a group of us and up to 47 members, and returns its key at once. A RangeError says what is wrong with the
   * title. If the server refuses it, the conversation is closed, "failed"; see retry and discard.
   * @param {string} title
   * @param {string[]} members
   * @returns {ConversationKey}
   */
  createGroup(title, members) {
    checkTitle(title);
    checkUsers(members);
    const entry = this.#newEntry("createGroup", {}, { title, members });
    this.#role.calls.accept(entry).catch((error) => this.#log(`createGroup: ${error.message}`));
    return NEW_KEY + entry.clientMsgId;
  }

  // Each of the following resolves to its clientMsgId once it is stored. What the server refuses is a row with the state
  // failed: FORBIDDEN where may says no, BAD_REQUEST for who is a member already, or is none.

  /**
   * Adds up to 48 users to a group, which has up to 1,000. Who lately left it by itself is not added.
   * @param {ConversationKey} key
   * @param {string[]} members
   */
  async addMembers(key, members) {
    checkUsers(members);
    return this.#change("addMembers", key, { members });
  }

  /**
   * Removes up to 48 members from a group, not ourselves: see leave.
   * @param {ConversationKey} key
   * @param {string[]} members
   */
  async removeMembers(key, members) {
    checkUsers(members);
    return this.#change("removeMembers", key, { members });
  }

  /**
   * Takes us out of a group, a dissolved one too. If we own it, the oldest admin does then, or else the oldest member.
   * @param {ConversationKey} key
   */
  async leave(key) {
    return this.#change("leave", key);
  }

  /**
   * Gives another member a role. If that is owner, we become an admin.
   * @param {ConversationKey} key
   * @param {string} userId
   * @param {import("./types.js").Role} role
   */
  async setRole(key, userId, role) {
    return this.#change("setRole", key, { userId, role });
  }

  /**
   * Renames a group. A RangeError says what is wrong with the title.
   * @param {ConversationKey} key
   * @param {string} title
   */
  async setTitle(key, title) {
    checkTitle(title);
    return this.#change("setTitle", key, { title });
  }

  /**
   * Ends a group: it can be read and left, and takes no messages any more.
   * @param {ConversationKey} key
   */
  async dissolve(key) {
    return this.#change("dissolve", key);
  }

  /**
   * Takes a message back, given its row.
   * @param {ConversationKey} key
   * @param {Pick<Row, "seq" | "messageId">} row
   */
  async recall(key, { seq, messageId }) {
    return this.#change("recall", key, { seq, messageId });
  }

  /**
   * Replaces the content of an own message, given its row. A RangeError says what is wrong with the text.
   * @param {ConversationKey} key
   * @param {Pick<Row, "seq" | "messageId">} row
   * @param {string | Omit<Content, "type">} content
   */
  async edit(key, { seq, messageId }, content) {
    const { text, data } = checkedContent(content);
    const current = this.currentKey(key);
    const ours = this.#role.model.outboxOf(current).filter(({ action, state, fields }) => action === "edit" && state !== "failed" && fields.seq === seq);
    const target = seq === null ? undefined : this.#role.model.ledgers.get(current)?.get(seq);
    const version = (target?.version ?? 1) + ours.length; // as it will be once these are committed
    return this.#ask("edit", addressOf(current), { seq, messageId, version, ...(data && { data }) }, text);
  }

  /**
   * Forgets what was refused; if that is a group that could not be made, also what was meant for it.
   * @param {string} clientMsgId
   */
  discard(clientMsgId) {
    this.#role.calls.do("discard", String(clientMsgId));
  }

  /**
   * Sends again what was refused, after all else; if that is a group that could not be made, also what was meant for
   * it. Resolves to its clientMsgId once it is stored, or to null if nothing has this clientMsgId.
   * @param {string} clientMsgId
   * @returns {Promise<string | null>}
   */
  async retry(clientMsgId) {
    return this.#role.calls.ask("retry", String(clientMsgId));
  }

  /**
   * Says which conversation is on screen in this tab, or null: its members and receipts are kept up to date.
   * @param {ConversationKey | null} key
   */
  show(key) {
    if (key !== null) checkKey(key);
    this.#role.show(key);
  }

  /**
   * Notes that the user has seen what a conversation shows, up to the seq throughSeq, or all of it.
   * @param {ConversationKey} key
   * @param {number} [throughSeq]
   */
  markRead(key, throughSeq = Infinity) {
    if (throughSeq !== Infinity && !Number.isSafeInteger(throughSeq)) throw new TypeError("throughSeq has to be a whole number");
    this.#raise(key, "readSeq", throughSeq);
  }

  /**
   * Hides everything shown in a conversation, for this user on all devices.
   * @param {ConversationKey} key
   */
  clear(key) {
    this.#raise(key, "clearedSeq");
    this.discardLost(key);
  }

  /**
   * Forgets the lost rows of a conversation, but not those of the outbox, which discard forgets.
   * @param {ConversationKey} key
   */
  discardLost(key) {
    const current = this.currentKey(key);
    if (this.#role.model.lost.some((lost) => this.#role.model.keyOfLost(lost) === current)) this.#role.calls.do("discardLost", current);
  }

  /**
   * Loads a page of what is before the first entry held. Rejects with a RequestError.
   * @param {ConversationKey} key
   * @returns {Promise<void>}
   */
  async loadEarlier(key) {
    await this.#role.calls.inquire("loadEarlier", this.currentKey(key));
  }

  /**
   * Who has received and who has read a message. Rejects with a RequestError.
   * @param {ConversationKey} key
   * @param {number} seq
   * @returns {Promise<{delivered: string[], read: string[]}>}
   */
  async receipts(key, seq) {
    if (!Number.isSafeInteger(seq)) throw new TypeError("seq has to be a whole number");
    return this.#role.calls.inquire("receipts", this.currentKey(key), seq);
  }

  // ---- the outbox ----

  /** @param {string} action @param {ConversationKey} key @param {Record<string, any>} [fields] */
  async #change(action, key, fields) {
    return this.#ask(action, addressOf(this.currentKey(key)), fields);
  }

  /**
   * @param {string} action
   * @param {Address} address
   * @param {Record<string, any>} [fields]
   * @param {string | null} [text]
   */
  async #ask(action, address, fields, text) {
    const entry = this.#newEntry(action, address, fields, text);
    await this.#role.calls.accept(entry);
    return entry.clientMsgId;
  }

  /**
   * @param {string} action
   * @param {Address} address
   * @param {Record<string, any>} [fields]
   * @param {string | null} [text]
   */
  #newEntry(action, address, fields = {}, text) {
    const copied = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, jsonCopy(value, name)]));
    const limit = this.#outboxLimit;
    if (this.#role.model.outbox.size >= limit) throw new RequestError({ code: "OUTBOX_FULL", message: `${limit} messages wait to be sent`, retryable: true });
    return newEntry({ entries: this.#role.model.outbox.values(), clock: this.#clock, action, address, fields: copied, text });
  }

  /** @param {ConversationKey} key @param {"readSeq" | "clearedSeq"} name @param {number} [throughSeq] */
  #raise(key, name, throughSeq = Infinity) {
    const ledger = this.#role.model.ledgers.get(this.currentKey(key));
    if (!ledger) return;
    const seq = Math.min(throughSeq, ledger.maxContiguousSeq);
    if (seq <= this.#role.model.factsOf(ledger.conversationId)[name]) return;
    this.#role.calls.raise(ledger.conversationId, { [name]: seq });
  }

  /** @param {string} conversationId @param {number[]} seqs */
  #tell(conversationId, seqs) {
    for (const seq of seqs) {
      const row = rowIn(this.#role.model, conversationId, seq, this.#readings.now());
      if (row) this.dispatchEvent(new CustomEvent("message", { detail: frozen({ key: conversationId, row }) }));
    }
  }

  #changed() {
    this.#readings.changed();
    this.dispatchEvent(new Event("change"));
  }
}

/** @param {ConversationKey} key @returns {Address} */
function addressOf(key) {
  if (key.startsWith(TO_KEY)) return { to: key.slice(TO_KEY.length) };
  if (key.startsWith(NEW_KEY)) return { group: key.slice(NEW_KEY.length) };
  return { conversationId: key };
}
