// The client as a tab sees it, whether this tab leads or follows. One tab of a device leads: it has the
// connection and writes what arrives to the store. The others hold a copy of what it knows. What the user
// asks for goes into the outbox, which all share, and the tab that leads sends it.

import { Channel } from "./channel.js";
import { checkKey, checkOptions, checkUsers, contentOf, jsonCopy } from "./checks.js";
import { RequestError, systemClock } from "./connection.js";
import { Engine, LIMITS } from "./engine.js";
import { raise } from "./facts.js";
import { FOLLOWER_TIMING, Follower } from "./follower.js";
import { Leader } from "./leader.js";
import { Model, NEW_KEY, TO_KEY } from "./model.js";
import { watchNetwork } from "./network.js";
import { newEntry, recordOf } from "./outbox.js";
import { nextEnd } from "./rights.js";
import { FencedError, IndexedDBStore, MemoryStore } from "./store.js";
import { Election, browserTabs } from "./tabs.js";
import { Views, frozen } from "./views.js";

/**
 * @import { ChannelMessage } from "./channel.js"
 * @import { Limits, Timing } from "./engine.js"
 * @import { Tabs } from "./tabs.js"
 * @import { Address, Clock, Content, Conversation, ConversationKey, ConnectionState, Delta, EntryRecord, Member, NewMessage, Picture, Row, Saved, Store } from "./types.js"
 */

/** The most text one message holds, counted in code points as the server counts runes. */
export const MAX_TEXT_RUNES = 4000;

/** The longest title of a group, counted in the same way. */
export const MAX_TITLE_RUNES = 100;

/** How long a tab waits for the one that leads, in ms. */
const TAB_TIMING = Object.freeze({
  ...FOLLOWER_TIMING,
  helloMs: 1_000, // for what it knows, before the store is read instead
  callMs: 15_000, // for an answer that it has to ask the server for
});

/** @typedef {Partial<Record<keyof typeof TAB_TIMING, number>>} TabTiming in ms */

const MAX_TIMEOUT_MS = 2 ** 31 - 1; // a longer one would end at once
const WIPE_TRIES = 5; // against tabs that claim the store meanwhile, each once

/** So many lists of rows, and so many conversations, are given as the same objects until they change. */
export const MAX_VIEWS = 1_000;

/**
 * Counts text as the server does.
 * @param {string} text
 */
export function countRunes(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/**
 * Who this device is and where the server is.
 * @typedef {object} Options
 * @property {string} url the server's, such as wss://abc.execute-api.eu-west-1.amazonaws.com/v1
 * @property {string} userId the user whose token it is: its sub, or what else the server takes it for. It cannot be
 *   left out, for a device shows what it has, and takes messages to send, before it has ever been connected
 * @property {string} deviceId 1 to 64 of A-Z a-z 0-9 . _ and -, the same after a reload and in all tabs that are to
 *   share a connection
 * @property {() => Promise<string> | string} token gives a JWT, or whatever the server takes for one: of a token that
 *   cannot be read here the server says whose it is. It is called before each connect, in the tab that leads. What it throws counts as a failed attempt; an error with `permanent: true` ends the attempts until
 *   setOffline(false).
 * @property {Store} [store] IndexedDB, or memory where the browser offers none
 * @property {Tabs | null} [tabs] how tabs find each other; null for a tab that is alone
 * @property {typeof globalThis.WebSocket} [WebSocket]
 * @property {(message: string) => void} [log] takes what a program need not act on; console.warn
 * @property {typeof watchNetwork} [network] for tests
 * @property {Clock} [clock] for tests
 * @property {() => number} [random] for tests
 * @property {Timing & TabTiming} [timing] in ms
 * @property {Limits} [limits]
 */

/**
 * Opens a device: all tabs of an origin that open the same url, userId and deviceId are one, with one
 * connection and one store. Resolves once there is something to show, which needs no connection; where
 * the browser gives no storage, storeError of the result says so, and all is kept in memory. A TypeError
 * says which option is wrong.
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
  const client = new InorderClient({ ...options, store, storeError });
  await client.start();
  return client;
}

/**
 * One device of one user, as a tab holds it. See open.
 *
 * What the user asks for (send, createGroup, addMembers, …, recall, edit) is put into the outbox and
 * gives its clientMsgId once it is stored; it is sent, and resent, until the server answers. Until then,
 * and if it is refused, messages shows it.
 *
 * Emits "change" whenever anything shown may have changed; see subscribe. Reading is synchronous, and gives
 * the same objects until what they say changes. They are frozen.
 *
 * Emits "message", a CustomEvent whose detail is a NewMessage, for each message of others that arrives, in
 * each tab of the device, after the "change" it comes with; not for what was there when the device was new.
 */
export class InorderClient extends EventTarget {
  #options;
  #store;
  #tabs;
  #clock;
  #log;
  #timing;
  /** @type {Model} */
  #model;
  /** @type {Error | null} */
  #storeError;
  /** @type {Error | null} The error of the tab that leads, as it is shown here. */
  #toldError = null;
  #version = 0; // grows with each change
  #windowEnd = { at: Infinity, timer: /** @type {any} */ (null) }; // of the row that was read whose time ends first
  #rows = new Views(MAX_VIEWS);
  #summaries = new Views(MAX_VIEWS);
  #tabId = randomId();
  /** @type {Election | null} */
  #election = null;
  /** @type {Channel | null} */
  #channel = null;
  /** @type {Engine | null} */
  #engine = null;
  /** @type {Leader | null} */
  #leader = null;
  /** @type {Follower | null} */
  #follower = null;
  /** @type {(() => void) | null} Lets go of the lock that shows that this tab is there. */
  #absent = null;
  #unwatch = () => {};
  #unwatchNetwork = () => {};
  #turn = 0; // grows whenever this tab's part changes; what belongs to an earlier one is void
  #term = 0; // the highest heard of
  #filled = false; // whether the model holds anything yet
  /** @type {"" | "closed" | "outdated"} Why this tab takes part no more. */
  #ended = "";
  /** @type {Map<number, {method: string, args: any[], resolve: (result: any) => void, reject: (error: Error) => void, timer: any}>} */
  #calls = new Map();
  #nextCall = 1;
  /** @type {ConversationKey | null} */
  #shown = null;
  /** @type {ConversationKey[]} */
  #shownElsewhere = [];
  /** @type {() => void} */
  #ready = () => {};

  /**
   * Makes one that does nothing before start; open is what programs use.
   * @param {Options & {store: Store, storeError?: Error | null}} options
   */
  constructor(options) {
    super();
    const { userId, deviceId, store, storeError = null, tabs = browserTabs(), clock = systemClock, log = (message) => console.warn(message), timing = {} } = options;
    this.userId = userId;
    this.deviceId = deviceId;
    this.#options = options;
    this.#store = store;
    this.#storeError = storeError;
    this.#tabs = tabs;
    this.#clock = clock;
    this.#log = log;
    this.#timing = { ...TAB_TIMING, ...timing };
    this.#model = new Model(userId);
  }

  /** @returns {ConnectionState} */
  get state() {
    return this.#ended ? "offline" : this.#model.status.state;
  }

  /**
   * Why the state is so, for people. When the server sent this device away for good it is the goodbye's
   * reason: "replaced" by a newer connection of this device, or one of too many "devices". "outdated" says
   * that a newer version of this code runs in another tab, and this one has to be reloaded; "closed" that
   * close was called.
   */
  get detail() {
    return this.#ended || this.#model.status.detail;
  }

  /** The error that ended persistence, or null. From then on everything lives in memory only. */
  get storeError() {
    const { storeError } = this.#model.status;
    if (!storeError) return this.#storeError;
    const { name, message } = storeError;
    if (this.#toldError?.message !== message) this.#toldError = Object.assign(new Error(message), { name });
    return this.#toldError;
  }

  /** Whether this tab has the device's connection. */
  get leads() {
    return this.#engine !== null;
  }

  /** Begins; open does it. */
  async start() {
    const { network = watchNetwork } = this.#options;
    this.#unwatchNetwork = network((quietMs) => this.#doubt(quietMs));
    if (!this.#tabs) return this.#lead();
    const ready = new Promise((/** @type {(value?: undefined) => void} */ resolve) => (this.#ready = resolve));
    this.#unwatch = this.#tabs.watch({ suspend: () => this.#suspend(), resume: () => void this.#join() });
    void this.#join();
    const timer = this.#clock.setTimeout(() => void this.#fillFromStore().then(() => this.#ready()), this.#timing.helloMs);
    await ready;
    this.#clock.clearTimeout(timer);
  }

  /**
   * Ends this tab's part, and resolves once what it was to write is written. Other tabs go on: one of
   * them leads from here on. The outbox stays.
   *
   * With forget, for a machine that others use too, all tabs of the device end, and all that they have stored
   * is gone, also what was not sent. Rejects if it cannot be wiped.
   * @param {{forget?: boolean}} [options]
   */
  async close({ forget = false } = {}) {
    if (this.#ended === "closed") return;
    if (forget) this.#channel?.post("forget");
    try {
      if (forget) await this.#forget();
      else await this.#quit();
      if (forget) await this.#wipe(/** @type {Store} */ (this.#options.store));
    } finally {
      this.#store.close();
    }
  }

  /**
   * Drops the device's connection and stays away, or comes back; for all of its tabs.
   * @param {boolean} offline
   */
  setOffline(offline) {
    const replaced = !this.#tabs && (!this.#engine || this.detail === "replaced"); // another tab may have written since
    if (!offline && replaced && !this.#ended) void this.#lead();
    else this.#do("setOffline", Boolean(offline));
  }

  /**
   * Tries to connect now if it waits to, and looks whether a connection that is there lives. The client does
   * so by itself when the browser says that the network is back, and when the page comes into sight.
   */
  retryNow() {
    this.#do("retryNow");
  }

  /**
   * Calls onChange whenever anything shown may have changed, until what is returned is called. It needs no
   * `this`, and fits React's useSyncExternalStore with any of the methods below.
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
   * As of every EventTarget.
   * @param {string} type
   * @param {any} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
  }

  // ---- what is there ----

  /**
   * The key of the conversation with a user, known to the server or not.
   * @param {string} userId
   * @returns {ConversationKey}
   */
  keyFor(userId) {
    if (typeof userId !== "string") throw new TypeError("a user id has to be a string");
    return this.#model.keyFor(userId);
  }

  /**
   * The key a conversation has now; it changes when the server names the conversation.
   * @param {ConversationKey} key
   */
  currentKey(key) {
    checkKey(key);
    return this.#model.currentKey(key);
  }

  /**
   * The conversations, most recent first.
   * @returns {readonly Conversation[]}
   */
  conversations() {
    const byTime = (/** @type {Conversation} */ a, /** @type {Conversation} */ b) => b.time - a.time;
    const seen = [...this.#model.ledgers.values()].reduce((sum, { maxSeenSeq }) => sum + maxSeenSeq, 0);
    return this.#rows.get("", `${this.#version} ${seen}`, () => this.#model.listed().map((key) => this.conversation(key)).sort(byTime));
  }

  /**
   * One conversation as in conversations, also for a key that nothing was sent to yet.
   * @param {ConversationKey} key
   * @returns {Conversation}
   */
  conversation(key) {
    const current = this.currentKey(key);
    const seen = this.#model.ledgers.get(current)?.maxSeenSeq ?? 0;
    return this.#summaries.get(current, `${this.#version} ${seen}`, () => this.#timed(this.#model.conversation(current, this.#clock.now()), ({ last }) => (last ? [last] : [])));
  }

  /**
   * The last `limit` rows of a conversation in order, what the server has not numbered yet at the end.
   * @param {ConversationKey} key
   * @param {number} [limit]
   * @returns {readonly Row[]}
   */
  messages(key, limit = Infinity) {
    const current = this.currentKey(key);
    return this.#rows.get(`${limit} ${current}`, `${this.#version}`, () => this.#timed(this.#model.messages(current, limit, this.#clock.now()), (rows) => rows));
  }

  /**
   * The members of a group, or null while unknown; show makes them known.
   * @param {ConversationKey} key
   * @returns {readonly Member[] | null}
   */
  members(key) {
    const current = this.currentKey(key);
    return this.#rows.get(`members ${current}`, `${this.#version}`, () => this.#model.members(current));
  }

  /**
   * Whether we may do something in a group, as far as is known; see may in rights.js.
   * @param {ConversationKey} key
   * @param {string} action
   * @param {string} [target]
   */
  may(key, action, target) {
    return this.#model.may(key, action, target);
  }

  // ---- what the user does ----

  /**
   * Sends a message, as the answer to the row replyTo if there is one. Gives its clientMsgId once it is
   * stored. A RangeError says what is wrong with the text, a TypeError what of it JSON cannot hold.
   * @param {ConversationKey} key
   * @param {string | Content} content a text, or what else it is
   * @param {{replyTo?: Pick<Row, "seq" | "messageId"> | null}} [options]
   */
  async send(key, content, { replyTo = null } = {}) {
    const { type, text, data } = checkedContent(content);
    const fields = { messageType: type, ...(data && { data }), ...(replyTo && { replyTo: { seq: replyTo.seq, messageId: replyTo.messageId } }) };
    return this.#ask("send", addressOf(this.currentKey(key)), fields, text);
  }

  /**
   * Makes a group of us and the members, and gives its key at once. A RangeError says what is wrong with
   * the title.
   * @param {string} title
   * @param {string[]} members
   * @returns {ConversationKey}
   */
  createGroup(title, members) {
    checkTitle(title);
    checkUsers(members);
    const entry = this.#newEntry("createGroup", {}, { title, members });
    this.#accept(entry).catch((error) => this.#log(`createGroup: ${error.message}`));
    return NEW_KEY + entry.clientMsgId;
  }

  /**
   * @param {ConversationKey} key
   * @param {string[]} members
   */
  async addMembers(key, members) {
    checkUsers(members);
    return this.#change("addMembers", key, { members });
  }

  /**
   * @param {ConversationKey} key
   * @param {string[]} members
   */
  async removeMembers(key, members) {
    checkUsers(members);
    return this.#change("removeMembers", key, { members });
  }

  /** @param {ConversationKey} key */
  async leave(key) {
    return this.#change("leave", key);
  }

  /**
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

  /** @param {ConversationKey} key */
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
   * Gives an own message another content, given its row. A RangeError says what is wrong with the text.
   * @param {ConversationKey} key
   * @param {Pick<Row, "seq" | "messageId">} row
   * @param {string | Omit<Content, "type">} content
   */
  async edit(key, { seq, messageId }, content) {
    const { text, data } = checkedContent(content);
    const current = this.currentKey(key);
    const ours = this.#model.entriesOf(current).filter(({ action, state, fields }) => action === "edit" && state !== "failed" && fields.seq === seq);
    const target = seq === null ? undefined : this.#model.ledgers.get(current)?.get(seq);
    const version = (target?.version ?? 1) + ours.length; // as it will be by then
    return this.#ask("edit", addressOf(current), { seq, messageId, version, ...(data && { data }) }, text);
  }

  /**
   * Forgets what was refused, and with a group that could not be made what was meant for it.
   * @param {string} clientMsgId
   */
  discard(clientMsgId) {
    this.#do("discard", String(clientMsgId));
  }

  /**
   * Sends again what was refused, as the last, and with a group that could not be made what was meant for it.
   * Gives its clientMsgId once that is stored, or null if there is nothing to send under the one given.
   * @param {string} clientMsgId
   * @returns {Promise<string | null>}
   */
  async retry(clientMsgId) {
    return this.#call("retry", [String(clientMsgId)]);
  }

  /**
   * Says which conversation is on screen in this tab, or null: more is kept up to date of that one.
   * @param {ConversationKey | null} key
   */
  show(key) {
    if (key !== null) checkKey(key);
    this.#shown = key;
    this.#follower?.show(key);
    this.#attend();
  }

  /**
   * Notes that the user has seen what is shown in a conversation, up to the row with the seq throughSeq, or
   * all of it.
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
   * Forgets the rows of a conversation that are lost, but for those of the outbox, which are discard's.
   * @param {ConversationKey} key
   */
  discardLost(key) {
    const current = this.currentKey(key);
    if (this.#model.lost.some((lost) => this.#model.keyOfLost(lost) === current)) this.#do("discardLost", current);
  }

  /**
   * Loads a page of what is before the first entry held. Rejects with a RequestError.
   * @param {ConversationKey} key
   * @returns {Promise<void>}
   */
  async loadEarlier(key) {
    await this.#call("loadEarlier", [this.currentKey(key)], this.#timing.callMs);
  }

  /**
   * Who has received and who has read a message. Rejects with a RequestError.
   * @param {ConversationKey} key
   * @param {number} seq
   * @returns {Promise<{delivered: string[], read: string[]}>}
   */
  async receipts(key, seq) {
    if (!Number.isSafeInteger(seq)) throw new TypeError("seq has to be a whole number");
    return this.#call("receipts", [this.currentKey(key), seq], this.#timing.callMs);
  }

  // ---- the outbox ----

  /**
   * @param {string} action
   * @param {ConversationKey} key
   * @param {Record<string, any>} [fields]
   */
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
    await this.#accept(entry);
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
    const { outbox: limit = LIMITS.outbox } = this.#options.limits ?? {};
    if (this.#model.entries.size >= limit) throw new RequestError({ code: "OUTBOX_FULL", message: `${limit} messages wait to be sent`, retryable: true });
    return newEntry({ entries: this.#model.entries.values(), clock: this.#clock, action, address, fields: copied, text });
  }

  // Where this tab leads, the engine stores it. Where it does not, it is in the shared store before the
  // leader hears of it: whatever becomes of the two tabs, the next leader finds it there.
  /** @param {import("./types.js").Entry} entry */
  async #accept(entry) {
    const record = recordOf(entry);
    if (this.#engine || this.#ended) {
      await this.#call("accept", [record]);
      return;
    }
    const taken = this.#call("accept", [record], Infinity, !this.#store.shared);
    taken.catch(() => {}); // it is sent all the same, see above
    this.#model.entries.set(entry.clientMsgId, entry);
    this.#changed();
    if (!this.#store.shared) return;
    try {
      await this.#store.commit({ outboxPut: [record] });
    } catch (error) {
      this.#log(`could not store: ${/** @type {Error} */ (error).message}`);
    }
    this.#dispatchAll();
  }

  /**
   * @param {ConversationKey} key
   * @param {"readSeq" | "clearedSeq"} name
   * @param {number} [throughSeq]
   */
  #raise(key, name, throughSeq = Infinity) {
    const ledger = this.#model.ledgers.get(this.currentKey(key));
    if (!ledger) return;
    const seq = Math.min(throughSeq, ledger.maxContiguousSeq);
    if (seq <= this.#model.factsOf(ledger.conversationId)[name]) return;
    this.#do("raise", ledger.conversationId, { [name]: seq });
    if (this.#engine) return;
    this.#overlay();
    this.#changed();
  }

  // What this tab asked for and the leader has not told of yet is shown all the same.
  #overlay() {
    for (const { method, args } of this.#calls.values()) {
      const facts = method === "raise" ? this.#model.facts.get(args[0]) : undefined;
      if (facts) raise(facts, args[1]);
      if (method === "discard") this.#model.entries.delete(args[0]);
      if (method !== "accept" || this.#model.entries.has(args[0].clientMsgId)) continue;
      this.#model.entries.set(args[0].clientMsgId, { ...args[0], ...notInFlight() });
    }
  }

  // ---- calls: what the tab that leads does ----

  /**
   * As call, where nobody waits.
   * @param {string} method
   * @param {any[]} args
   */
  #do(method, ...args) {
    this.#call(method, args).catch((error) => this.#log(`${method}: ${error.message}`));
  }

  /**
   * Has something done by this tab or by the one that leads, again by the next one if that ends before it
   * has answered. Everything that is asked for may thus be done twice without harm.
   * @param {string} method
   * @param {any[]} args
   * @param {number} [patienceMs]
   * @param {boolean} [now]
   * @returns {Promise<any>}
   */
  #call(method, args, patienceMs = Infinity, now = true) {
    if (this.#ended) return Promise.reject(new RequestError(ENDINGS[this.#ended]));
    const id = this.#nextCall++;
    const called = new Promise((resolve, reject) => {
      const timer = patienceMs === Infinity ? null : this.#clock.setTimeout(() => this.#settle(id, (call) => call.reject(new RequestError(UNANSWERED))), patienceMs);
      this.#calls.set(id, { method, args, resolve, reject, timer });
    });
    if (now) this.#dispatch(id);
    return called;
  }

  #dispatchAll() {
    for (const id of [...this.#calls.keys()]) this.#dispatch(id);
  }

  /** @param {number} id */
  #dispatch(id) {
    const call = this.#calls.get(id);
    if (!call) return;
    const engine = this.#engine;
    if (engine) {
      this.#perform(engine, call.method, call.args).then(
        (result) => engine === this.#engine && this.#settle(id, ({ resolve }) => resolve(result)),
        (error) => engine === this.#engine && this.#settle(id, ({ reject }) => reject(error)),
      );
    } else if (this.#follower) this.#follower.call(id, call.method, call.args);
    else if (!this.#tabs && call.timer !== null) this.#settle(id, ({ reject }) => reject(new RequestError(AWAY)));
  }

  /**
   * @param {number} id
   * @param {(call: {resolve: (result: any) => void, reject: (error: Error) => void}) => void} how
   */
  #settle(id, how) {
    const call = this.#calls.get(id);
    if (!call) return;
    this.#calls.delete(id);
    if (call.timer !== null) this.#clock.clearTimeout(call.timer);
    how(call);
  }

  /**
   * @param {Engine} engine
   * @param {string} method
   * @param {any[]} args
   */
  async #perform(engine, method, args) {
    switch (method) {
      case "accept":
        return engine.accept({ .../** @type {EntryRecord} */ (args[0]), ...notInFlight() });
      case "raise":
        return engine.raise(args[0], args[1]);
      case "discard":
        return engine.discard(args[0]);
      case "discardLost":
        return engine.discardLost(args[0]);
      case "retry":
        return engine.retry(args[0]);
      case "setOffline":
        return engine.setOffline(args[0]);
      case "retryNow":
        return engine.retryNow(args[0]);
      case "loadEarlier":
        return engine.loadEarlier(args[0]);
      case "receipts":
        return engine.receipts(args[0], args[1]);
      default:
        throw new RequestError({ code: "UNKNOWN_ACTION", message: `this tab cannot do ${method}` });
    }
  }

  // As retryNow, where it need not be done later if nobody leads now.
  /** @param {number} quietMs */
  #doubt(quietMs) {
    if (this.#engine) this.#engine.retryNow(quietMs);
    else this.#follower?.call(this.#nextCall++, "retryNow", [quietMs]);
  }

  // ---- this tab's part ----

  // Takes part: follows whoever leads, and waits to be the next.
  async #join() {
    const tabs = this.#tabs;
    if (!tabs || this.#ended || this.#channel) return;
    const turn = ++this.#turn;
    this.#channel = new Channel({
      open: tabs.channel,
      name: this.#name,
      tabId: this.#tabId,
      log: this.#log,
      hooks: {
        message: (message) => this.#receive(message),
        newer: () => this.#end("outdated"),
        older: () => this.#leader?.announce(),
      },
    });
    this.#election = new Election({
      locks: tabs.locks,
      name: this.#name,
      hooks: { won: () => void this.#lead(), lost: () => this.#stepDown(), failed: (error) => this.#alone(error) },
    });
    await this.#showPresence(tabs, turn);
    if (turn !== this.#turn) return;
    this.#follow();
    this.#election.join();
  }

  // Ends the part of a tab that is to be closed, frozen or put aside: it could not answer the others. It
  // has to be done at once.
  #suspend() {
    this.#turn++;
    this.#channel?.post("bye");
    this.#retire();
    this.#election?.leave();
    this.#absent?.();
    this.#channel?.close();
    this.#election = this.#channel = this.#absent = null;
  }

  /** @param {"closed" | "outdated"} why */
  #end(why) {
    if (this.#ended) return;
    this.#unwatch();
    this.#unwatchNetwork();
    this.#suspend();
    this.#clock.clearTimeout(this.#windowEnd.timer);
    this.#ended = why;
    for (const id of [...this.#calls.keys()]) this.#settle(id, ({ reject }) => reject(new RequestError(ENDINGS[why])));
    this.#ready();
    this.#changed();
  }

  async #quit() {
    const written = this.#engine?.settled();
    this.#end("closed");
    await written;
  }

  // Ends, and takes back what this tab may have written since another one wiped the store: it may have led by
  // then. What a new sign-in has stored meanwhile stays.
  async #forget() {
    const term = this.#engine ? this.#term : null;
    const outboxDelete = [...this.#model.entries.keys()];
    this.#model = new Model(this.userId);
    await this.#quit();
    await this.#store.commit({ outboxDelete });
    if (term !== null) await this.#store.commit({ forget: true }, term).catch(unlessFenced);
  }

  // A tab that leads and has not heard of it yet cannot write any more, for the store is claimed. It may claim
  // it in turn before it hears.
  /** @param {Store} store */
  async #wipe(store) {
    for (let tries = 1; ; tries++) {
      const term = await store.claim(Math.max(this.#clock.now(), this.#term));
      const { outbox } = await store.load();
      try {
        return await store.commit({ forget: true, outboxDelete: outbox.map(({ clientMsgId }) => clientMsgId) }, term);
      } catch (error) {
        if (tries === WIPE_TRIES) throw error;
        unlessFenced(error);
      }
    }
  }

  /** Gives up what belongs to leading and following. */
  #retire() {
    this.#engine?.halt();
    this.#leader?.close();
    this.#follower?.close();
    if (this.#follower) this.#term = Math.max(this.#term, this.#follower.term);
    this.#engine = this.#leader = this.#follower = null;
  }

  async #lead() {
    const turn = ++this.#turn;
    this.#retire();
    const { term, saved } = await this.#claim();
    if (turn !== this.#turn) return;
    const earlier = this.#model;
    const { state, windows, storeError } = earlier.status;
    const away = state === "offline" && this.#tabs !== null;
    this.#term = term;
    const model = new Model(this.userId);
    model.load(saved);
    model.inherit(earlier);
    model.status = { state: away ? "offline" : "connecting", detail: away ? earlier.status.detail : "", windows, storeError: this.#store.shared ? null : storeError };
    this.#model = model;
    this.#filled = true;
    /** @type {Engine} */
    const engine = new Engine({
      ...this.#options,
      WebSocket: this.#options.WebSocket ?? globalThis.WebSocket,
      log: this.#log,
      store: this.#store,
      model,
      term,
      hooks: {
        changed: () => {
          this.#leader?.changed();
          this.#changed();
        },
        kept: (change) => this.#leader?.kept(change),
        news: (conversationId, seqs) => {
          this.#leader?.news(conversationId, seqs);
          this.#tell(conversationId, seqs);
        },
        fenced: () => engine === this.#engine && this.#stepDown(),
      },
    });
    this.#engine = engine;
    const channel = this.#channel;
    if (channel) {
      this.#leader = new Leader({
        channel,
        term,
        model,
        log: this.#log,
        watch: (tabId, signal) => this.#awaitEnd(tabId, signal),
        hooks: {
          perform: (method, args) => this.#perform(engine, method, args),
          settled: () => engine.settled(),
          show: (keys) => {
            this.#shownElsewhere = keys;
            this.#attend();
          },
          superseded: () => engine === this.#engine && this.#stepDown(),
        },
      });
    }
    engine.start();
    this.#attend();
    this.#dispatchAll();
    this.#changed();
    this.#ready();
  }

  // Makes the store this tab's own, and gives what it has. What cannot be stored is held in memory.
  /** @returns {Promise<{term: number, saved: Saved}>} */
  async #claim() {
    const atLeast = Math.max(this.#clock.now(), this.#term);
    try {
      const term = await this.#store.claim(atLeast);
      const saved = await this.#store.load();
      if (!this.#filled || this.#store.shared) return { term, saved };
      const known = this.#model.dump();
      await this.#store.commit({ forget: true, ...known }, term);
      return { term, saved: known };
    } catch (thrown) {
      this.#storeError = /** @type {Error} */ (thrown);
      this.#log(`could not read the store: ${this.#storeError.message}`);
      this.#store = new MemoryStore();
      return { term: await this.#store.claim(atLeast), saved: this.#model.dump() };
    }
  }

  #follow() {
    this.#retire();
    const channel = this.#channel;
    const tabs = this.#tabs;
    if (!channel || !tabs) return;
    this.#follower = new Follower({
      channel,
      term: this.#term,
      key: this.#shown,
      isVisible: tabs.isVisible,
      clock: this.#clock,
      timing: this.#timing,
      hooks: {
        picture: (picture) => this.#take(Model.of(this.userId, picture)),
        delta: (delta) => {
          this.#model.apply(delta);
          this.#overlay();
          this.#changed();
          for (const [conversationId, seqs] of delta.news) this.#tell(conversationId, seqs);
        },
        answer: (id, { result, error }) => this.#settle(id, (call) => (error ? call.reject(new RequestError(error)) : call.resolve(result))),
        led: () => this.#dispatchAll(),
        silent: () => {
          this.#log("the tab that leads does not answer: this one takes over");
          this.#election?.steal();
        },
      },
    });
    this.#dispatchAll();
  }

  // Another tab leads now: by force, or because this one was away for too long.
  #stepDown() {
    this.#turn++; // also if it was just about to lead
    this.#retire();
    const { state, detail } = this.#model.status;
    const wanted = this.#tabs ? state !== "offline" || detail === "replaced" : false; // it was that other tab that replaced us
    this.#model.status = { ...this.#model.status, state: wanted ? "connecting" : "offline", detail: this.#tabs ? (wanted ? "" : detail) : "replaced" };
    if (this.#tabs) {
      this.#follow();
      this.#election?.join();
    }
    this.#changed();
  }

  // The browser has locks, but not for this page.
  /** @param {Error} error */
  #alone(error) {
    this.#log(`tabs cannot share a connection here: ${error.message}`);
    this.#unwatch();
    this.#suspend();
    this.#tabs = null;
    void this.#lead();
  }

  /** @param {Model} model */
  #take(model) {
    this.#model = model;
    this.#filled = true;
    this.#overlay();
    this.#changed();
    this.#ready();
  }

  // For a tab whose leader does not answer: what was stored is there to be read.
  async #fillFromStore() {
    try {
      const saved = await this.#store.load();
      if (this.#filled) return;
      const model = new Model(this.userId);
      model.load(saved);
      model.inherit(this.#model);
      this.#take(model);
    } catch (error) {
      this.#log(`could not read the store: ${/** @type {Error} */ (error).message}`);
    }
  }

  /** @param {ChannelMessage} message */
  #receive(message) {
    if (message.type === "forget") {
      this.#forget()
        .catch((error) => this.#log(`could not wipe the store: ${error.message}`))
        .finally(() => this.#store.close());
      return;
    }
    this.#leader?.receive(message);
    this.#follower?.receive(message);
  }

  #attend() {
    this.#engine?.show(new Set([...this.#shownElsewhere, ...(this.#shown === null ? [] : [this.#shown])]));
  }

  get #name() {
    return ["inorder", this.#options.url, this.userId, this.deviceId].map(encodeURIComponent).join("/");
  }

  // Holds a lock as long as this tab takes part, so that its leader notices when it is gone.
  /**
   * @param {Tabs} tabs
   * @param {number} turn
   */
  #showPresence({ locks }, turn) {
    return new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
      const held = () =>
        new Promise((/** @type {(value?: undefined) => void} */ release) => {
          resolve();
          if (turn === this.#turn) this.#absent = release;
          else release(); // put aside meanwhile
        });
      locks.request(this.#presenceOf(this.#tabId), held).catch(() => resolve()); // the election tells what is wrong
    });
  }

  /**
   * @param {string} tabId
   * @param {AbortSignal} signal
   */
  async #awaitEnd(tabId, signal) {
    await this.#tabs?.locks.request(this.#presenceOf(tabId), { signal }, () => undefined);
  }

  /** @param {string} tabId */
  #presenceOf(tabId) {
    return `${this.#name}/${tabId}`;
  }

  /**
   * @param {string} conversationId
   * @param {number[]} seqs
   */
  #tell(conversationId, seqs) {
    for (const seq of seqs) {
      const row = this.#model.row(conversationId, seq, this.#clock.now());
      if (row) this.dispatchEvent(new CustomEvent("message", { detail: frozen({ key: conversationId, row }) }));
    }
  }

  // Sees to it that what is read is made anew when the time to edit or recall one of its rows is over.
  /**
   * @template T
   * @param {T} value
   * @param {(value: T) => readonly Row[]} rowsIn
   * @returns {T}
   */
  #timed(value, rowsIn) {
    const now = this.#clock.now();
    const at = nextEnd(rowsIn(value), this.#model.status.windows, now);
    if (at >= this.#windowEnd.at || this.#ended) return value;
    this.#clock.clearTimeout(this.#windowEnd.timer);
    const ended = () => {
      this.#windowEnd = { at: Infinity, timer: null };
      this.#changed();
    };
    this.#windowEnd = { at, timer: this.#clock.setTimeout(ended, Math.min(at - now, MAX_TIMEOUT_MS)) };
    return value;
  }

  #changed() {
    this.#version++;
    this.dispatchEvent(new Event("change"));
  }
}

const ENDINGS = {
  closed: { code: "CLOSED", message: "the client is closed" },
  outdated: { code: "OUTDATED", message: "a newer version of this page is open in another tab; reload this one" },
};
const UNANSWERED = { code: "TIMEOUT", message: "the tab that has the connection did not answer", retryable: true };
const AWAY = { code: "DISCONNECTED", message: "not connected", retryable: true };

/** @param {ConversationKey} key @returns {Address} */
function addressOf(key) {
  if (key.startsWith(TO_KEY)) return { to: key.slice(TO_KEY.length) };
  if (key.startsWith(NEW_KEY)) return { group: key.slice(NEW_KEY.length) };
  return { conversationId: key };
}

/** @param {string | Content} content @returns {Content} */
function checkedContent(content) {
  const { type, text, data } = contentOf(content);
  if (type === "text" && !data && (text ?? "").trim() === "") throw new RangeError("the message is empty");
  if (text !== undefined && countRunes(text) > MAX_TEXT_RUNES) throw new RangeError(`the message is over ${MAX_TEXT_RUNES} characters`);
  return { type, text, data };
}

/** @param {string} title */
function checkTitle(title) {
  if (typeof title !== "string") throw new TypeError("the title has to be a string");
  if (title.trim() === "") throw new RangeError("the title is empty");
  if (countRunes(title) > MAX_TITLE_RUNES) throw new RangeError(`the title is over ${MAX_TITLE_RUNES} characters`);
}

/** @param {unknown} error */
function unlessFenced(error) {
  if (!(error instanceof FencedError)) throw error;
}

function notInFlight() {
  return { busy: null, failures: 0, stored: false };
}

function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
