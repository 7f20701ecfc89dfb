// What the tab that leads does for the others: it does what they ask for and tells them what changed. It tells only
// what is stored, so that no tab shows what a crash would take back.

import { RequestError } from "./connection.js";
import { lookOf, shownOf } from "./model.js";

/**
 * @import { Channel, ChannelMessage } from "./channel.js"
 * @import { ConversationKey, ConversationRecord, Member, Message, StoreChange } from "./types.js"
 * @import { Model } from "./model.js"
 */

/**
 * @typedef {object} LeaderHooks
 * @property {(method: string, args: any[]) => Promise<any>} perform
 * @property {() => Promise<void>} settled resolves when all that came is stored
 * @property {(keys: ConversationKey[]) => void} show what the other tabs have on screen
 * @property {() => void} superseded another tab leads
 */

export class Leader {
  #channel;
  #term;
  #model;
  #hooks;
  #watch;
  #log;
  #n = 0;
  #scheduled = false;
  #closed = new AbortController();
  /** @type {Map<string, {key: ConversationKey | null, inbox: ReturnType<Channel["inbox"]>}>} */
  #tabs = new Map();
  /** What was kept since the last delta. @type {{forget: boolean, messages: Message[], conversations: Map<string, ConversationRecord>}} */
  #kept = { forget: false, messages: [], conversations: new Map() };
  /** @type {[string, number[]][]} The seqs of kept messages that are news to the user. */
  #news = [];
  /** How the others last saw each outbox entry. @type {Map<string, string>} */
  #looks = new Map();
  /** Outbox entries that are gone, and whether all that came until then is stored. @type {Map<string, boolean>} */
  #gone = new Map();
  /** @type {Map<string, Member[]>} */
  #rosters = new Map();
  /** @type {Set<string>} */
  #created = new Set();
  #lost;
  #status;

  /**
   * @param {object} parts
   * @param {Channel} parts.channel
   * @param {number} parts.term
   * @param {Model} parts.model
   * @param {LeaderHooks} parts.hooks
   * @param {(tabId: string, signal: AbortSignal) => Promise<void>} parts.watch resolves when a tab ended
   * @param {(message: string) => void} parts.log
   */
  constructor({ channel, term, model, hooks, watch, log }) {
    this.#channel = channel;
    this.#term = term;
    this.#model = model;
    this.#hooks = hooks;
    this.#watch = watch;
    this.#log = log;
    this.#status = model.status;
    this.#lost = model.lost;
    this.announce();
  }

  /** Says who leads; the others introduce themselves. */
  announce() {
    this.#channel.post("lead", { term: this.#term });
  }

  close() {
    this.#closed.abort();
    for (const { inbox } of this.#tabs.values()) inbox.close();
    this.#tabs.clear();
  }

  /**
   * Notes what is stored of the model.
   * @param {StoreChange} change
   */
  kept({ forget = false, messages = [], conversations = [] }) {
    if (this.#tabs.size === 0) return;
    if (forget) this.#kept = { forget, messages: [], conversations: new Map() };
    this.#kept.messages.push(...messages);
    for (const conversation of conversations) this.#kept.conversations.set(conversation.conversationId, conversation);
    this.changed();
  }

  /**
   * Messages of others have come. The other tabs hear of it with or after the messages themselves.
   * @param {string} conversationId @param {number[]} seqs
   */
  news(conversationId, seqs) {
    const stored = () => {
      if (this.#tabs.size === 0) return;
      this.#news.push([conversationId, seqs]);
      this.changed();
    };
    this.#hooks.settled().then(stored).catch((error) => this.#log(`could not tell the other tabs: ${error}`));
  }

  /** Something changed; the others are told once all that came is stored. */
  changed() {
    if (this.#scheduled || this.#tabs.size === 0) return;
    this.#scheduled = true;
    const flush = () => {
      this.#scheduled = false;
      if (!this.#closed.signal.aborted) this.#flush();
    };
    this.#hooks.settled().then(flush).catch((error) => this.#log(`could not tell the other tabs: ${error}`));
  }

  /** @param {ChannelMessage} message */
  receive(message) {
    const { from, type, term } = message;
    if (term !== undefined) {
      if (term > this.#term) this.#hooks.superseded();
      return;
    }
    if (type === "hello") this.#welcome(from, keyIn(message));
    else if (type === "show") this.#show(from, keyIn(message));
    else if (type === "bye") this.#forget(from);
    else if (type === "ping") this.#channel.post("pong", { to: from, term: this.#term, n: this.#n });
    else if (type === "call") this.#serve(message).catch((error) => this.#log(`could not do what another tab asked for: ${error}`));
  }

  /** @param {string} tabId @param {ConversationKey | null} key */
  #welcome(tabId, key) {
    this.#flush();
    if (!this.#tabs.has(tabId)) {
      this.#tabs.set(tabId, { key, inbox: this.#channel.inbox(tabId) });
      void this.#watch(tabId, this.#closed.signal).then(
        () => this.#forget(tabId),
        () => {}, // this leader ended first
      );
    }
    this.#tabs.get(tabId)?.inbox.post("picture", { term: this.#term, n: this.#n, picture: this.#model.picture() });
    this.#show(tabId, key);
  }

  /** @param {string} tabId @param {ConversationKey | null} key */
  #show(tabId, key) {
    const tab = this.#tabs.get(tabId);
    if (tab) tab.key = key;
    this.#hooks.show([...this.#tabs.values()].flatMap((other) => other.key ?? []));
  }

  /** @param {string} tabId */
  #forget(tabId) {
    this.#tabs.get(tabId)?.inbox.close();
    if (this.#tabs.delete(tabId)) this.#show(tabId, null);
  }

  /** @param {ChannelMessage} call */
  async #serve({ from: to, id, method, args }) {
    if (!Number.isInteger(id) || !Array.isArray(args) || (method === "accept" && !isEntry(args[0]))) throw new Error("that makes no sense");
    if (method === "accept") this.#looks.set(args[0].clientMsgId, ""); // that tab shows it already, so its end has to be told
    const answer = await this.#hooks.perform(method, args).then(
      (result) => ({ result }),
      (error) => ({ error: refusalOf(error) }),
    );
    await this.#hooks.settled();
    if (this.#closed.signal.aborted) return;
    this.#flush(); // the answer comes after the change that it answers for
    this.#channel.post("answer", { to, term: this.#term, id, ...answer });
  }

  #flush() {
    const { forget, messages, conversations } = this.#kept;
    const delta = {
      forget,
      messages,
      conversations: [...conversations.values()],
      ...this.#entries(),
      rosters: this.#changedRosters(),
      created: [...this.#model.created].filter(([clientMsgId]) => !this.#created.has(clientMsgId)),
      status: this.#model.status,
      news: this.#news.splice(0),
      ...(this.#lost !== this.#model.lost && { lost: this.#model.lost }),
    };
    this.#kept = { forget: false, messages: [], conversations: new Map() };
    for (const [clientMsgId] of delta.created) this.#created.add(clientMsgId);
    const news = [delta.messages, delta.conversations, delta.entriesPut, delta.entriesDelete, delta.rosters, delta.created, delta.news].some(({ length }) => length > 0);
    if (!news && !forget && !delta.lost && this.#status === delta.status) return;
    this.#lost = this.#model.lost;
    this.#status = delta.status;
    if (this.#tabs.size === 0) return;
    this.#n++;
    this.#channel.post("delta", { term: this.#term, n: this.#n, delta });
  }

  #entries() {
    const { outbox } = this.#model;
    const entriesPut = [];
    for (const entry of outbox.values()) {
      const look = lookOf(entry);
      if (this.#looks.get(entry.clientMsgId) === look) continue;
      this.#looks.set(entry.clientMsgId, look);
      entriesPut.push(shownOf(entry));
    }
    for (const clientMsgId of this.#gone.keys()) {
      if (outbox.has(clientMsgId)) this.#gone.delete(clientMsgId);
    }
    for (const clientMsgId of this.#looks.keys()) {
      if (!outbox.has(clientMsgId) && !this.#gone.has(clientMsgId)) this.#awaitSuccessor(clientMsgId);
    }
    const entriesDelete = [...this.#gone].filter(([, stored]) => stored).map(([clientMsgId]) => clientMsgId);
    for (const clientMsgId of entriesDelete) {
      this.#gone.delete(clientMsgId);
      this.#looks.delete(clientMsgId);
    }
    return { entriesPut, entriesDelete };
  }

  // The message that takes the entry's place is told once it is stored. Until then the entry is shown, or neither would
  // be.
  /** @param {string} clientMsgId */
  #awaitSuccessor(clientMsgId) {
    this.#gone.set(clientMsgId, false);
    const stored = () => {
      if (this.#closed.signal.aborted || !this.#gone.has(clientMsgId)) return;
      this.#gone.set(clientMsgId, true);
      this.#flush();
    };
    this.#hooks.settled().then(stored).catch((error) => this.#log(`could not tell the other tabs: ${error}`));
  }

  /** @returns {[string, Member[] | null][]} */
  #changedRosters() {
    const { rosters } = this.#model;
    /** @type {[string, Member[] | null][]} */
    const changed = [...rosters].filter(([conversationId, members]) => this.#rosters.get(conversationId) !== members);
    for (const conversationId of this.#rosters.keys()) {
      if (!rosters.has(conversationId)) changed.push([conversationId, null]);
    }
    this.#rosters = new Map(rosters);
    return changed;
  }
}

/** @param {ChannelMessage} message */
function keyIn({ key }) {
  return typeof key === "string" ? key : null;
}

/** @param {any} record */
function isEntry(record) {
  const { clientMsgId, action, address, fields } = record ?? {};
  return typeof clientMsgId === "string" && typeof action === "string" && address instanceof Object && fields instanceof Object;
}

/** @param {any} error */
function refusalOf(error) {
  if (error instanceof RequestError) return { code: error.code, message: error.message, retryable: error.retryable, field: error.field, details: error.details };
  return { code: "INTERNAL", message: `the tab that leads could not do it: ${error?.message ?? error}`, retryable: true };
}
