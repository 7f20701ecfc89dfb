// The client of one device: it keeps every conversation complete and in order, and every message the
// user sent until the server has answered for it. Pushes make it fast; sync makes it right.

import { Connection, TIMING as CONNECTION_TIMING, RequestError, fullJitter, systemClock } from "./connection.js";
import { Ledger } from "./ledger.js";

/** The most text one message holds, counted in code points as the server counts runes. */
export const MAX_TEXT_RUNES = 4000;

export const TIMING = Object.freeze({
  ...CONNECTION_TIMING,
  gapWaitMs: 200, // a missing entry is often just late
  ownWaitMs: 2_000, // our own message is shown already, so its copy may take longer
  flushWaitMs: 5_000, // the outbox waits for the catch-up after a connect, but not for ever
});

const PULLS_AT_ONCE = 4;
const PULL_LIMIT = 100;
const UNSENT_KEY = "to:";

/** Counts text as the server does. */
export function countRunes(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/**
 * A conversation is named by a key: its conversationId, or, until the server has named it, what keyFor
 * gives for the other user. Both are good for send and messages for ever.
 *
 * Emits "change" whenever anything shown may have changed.
 */
export class InorderClient extends EventTarget {
  /** The error that ended persistence, or null. From then on everything lives in memory only. */
  storeError = null;

  #store;
  #clock;
  #random;
  #timing;
  #log;
  #connection;
  #ledgers = new Map();
  #facts = new Map(); // conversationId → what else is known of it, see newFacts
  #peers = new Map(); // userId → conversationId of the single conversation
  #outbox = new Map(); // clientMsgId → entry, oldest first
  #lastOrder = 0;
  #syncCursor = null;
  #session = null;
  #writes = Promise.resolve();

  /** getToken gives a fresh JWT for each connect (a promise); an error with `permanent` stops. */
  constructor({ url, userId, deviceId, getToken, store, WebSocket = globalThis.WebSocket, clock = systemClock, random = Math.random, log = console.warn, timing = {} }) {
    super();
    this.userId = userId;
    this.deviceId = deviceId;
    this.#store = store;
    this.#clock = clock;
    this.#random = random;
    this.#timing = { ...TIMING, ...timing };
    this.#log = log;
    this.#connection = new Connection({
      clock,
      random,
      log,
      timing,
      hooks: {
        open: async () => new WebSocket(`${url}?device=${encodeURIComponent(deviceId)}`, ["inorder.v1", `bearer.${await getToken()}`]),
        onOpen: () => this.#arrived(),
        onPush: (frame) => this.#pushed(frame),
        onBeat: () => this.#catchUp(this.#session), // the last push into a quiet conversation may be lost
        onState: () => {
          if (this.state !== "online") this.#leave();
          this.#changed();
        },
      },
    });
  }

  /** "connecting", "online" or "offline". */
  get state() {
    return this.#connection.state;
  }

  /** Why the state is so, for people; "replaced" when a newer connection of this device took over. */
  get detail() {
    return this.#connection.detail;
  }

  /** Loads what the store has and connects. */
  async start() {
    const saved = await this.#store.load();
    this.#syncCursor = saved.syncCursor;
    const messages = groupByConversation(saved.messages);
    for (const { conversationId, maxContiguousSeq, ...facts } of saved.conversations) {
      this.#ledgers.set(conversationId, new Ledger(conversationId, { maxContiguousSeq, messages: messages.get(conversationId) }));
      this.#facts.set(conversationId, { ...newFacts(), ...facts });
      this.#notePeer(conversationId);
    }
    for (const entry of saved.outbox.sort((a, b) => a.order - b.order)) {
      this.#outbox.set(entry.clientMsgId, { ...entry, ...notInFlight(), stored: true });
      this.#lastOrder = entry.order;
    }
    this.#changed();
    this.#connection.start();
  }

  /** Disconnects and closes the store once everything is written. */
  async stop() {
    this.setOffline(true);
    await this.#writes;
    this.#store.close();
  }

  /** Drops the connection and stays away, or comes back. */
  setOffline(offline) {
    if (offline) this.#connection.stop();
    else this.#connection.start();
  }

  /** Tries to connect now if it waits to: the network is back. */
  retryNow() {
    this.#connection.retryNow();
  }

  /** The key of the conversation with a user, known to the server or not. */
  keyFor(userId) {
    return this.#peers.get(userId) ?? UNSENT_KEY + userId;
  }

  /** The key a conversation has now; a keyFor key changes when the server names the conversation. */
  currentKey(key) {
    return key.startsWith(UNSENT_KEY) ? this.keyFor(key.slice(UNSENT_KEY.length)) : key;
  }

  /**
   * Puts a text into the outbox and gives its clientMsgId once it is stored. It is sent, and resent,
   * until the server answers. A RangeError says that the text is empty or too long.
   */
  async send(key, text) {
    if (text.trim() === "") throw new RangeError("the message is empty");
    if (countRunes(text) > MAX_TEXT_RUNES) throw new RangeError(`the message is over ${MAX_TEXT_RUNES} characters`);
    key = this.currentKey(key);
    this.#lastOrder = Math.max(this.#lastOrder + 1, this.#clock.now());
    const entry = {
      clientMsgId: `${this.deviceId}-${randomHex(12)}`,
      order: this.#lastOrder,
      address: key.startsWith(UNSENT_KEY) ? { to: key.slice(UNSENT_KEY.length) } : { conversationId: key },
      text: text.toWellFormed?.() ?? text,
      clientTime: this.#clock.now(),
      state: "sending",
      ...notInFlight(),
      stored: false,
    };
    this.#outbox.set(entry.clientMsgId, entry);
    this.#changed();
    await this.#commit({ outboxPut: [storedEntry(entry)] });
    entry.stored = true;
    this.#pump();
    return entry.clientMsgId;
  }

  /** Forgets a message that failed. */
  discard(clientMsgId) {
    if (this.#outbox.get(clientMsgId)?.state !== "failed") return;
    this.#outbox.delete(clientMsgId);
    this.#commit({ outboxDelete: [clientMsgId] });
    this.#changed();
  }

  /** Notes that the user has seen everything shown in a conversation. */
  markRead(key) {
    const ledger = this.#ledgers.get(this.currentKey(key));
    if (!ledger || !this.#raise(ledger, { readSeq: ledger.maxContiguousSeq })) return;
    this.#commit({ conversations: [this.#record(ledger)] });
    this.#changed();
  }

  /** The conversations, most recent first: {key, kind, title, peer, unread, last}; last is a row as in messages, or null. */
  conversations() {
    const keys = new Set(this.#ledgers.keys());
    for (const entry of this.#outbox.values()) keys.add(this.#keyOf(entry));
    return [...keys].map((key) => this.#summary(key)).sort((a, b) => (b.last?.time ?? 0) - (a.last?.time ?? 0));
  }

  /** One conversation as in conversations, also for a key that nothing was sent to yet. */
  conversation(key) {
    return this.#summary(this.currentKey(key));
  }

  /**
   * The last `limit` rows of a conversation in order, what the server has not numbered yet at the end:
   * {seq, clientMsgId, senderId, mine, kind, text, event, recalled, edited, time, state, error, receipt}.
   * For our own, state is "sending", "sent" or "failed", and receipt "delivered" or "read" once the
   * other user's device says so.
   */
  messages(key, limit = Infinity) {
    key = this.currentKey(key);
    const facts = this.#facts.get(key) ?? newFacts();
    const own = [...this.#outbox.values()].filter((entry) => this.#keyOf(entry) === key).map((entry) => this.#ownRow(entry));
    const numbered = own.filter((row) => row.seq !== null);
    const rows = this.#shown(key, facts, limit).concat(numbered);
    if (numbered.length > 0) rows.sort((a, b) => a.seq - b.seq);
    return rows.concat(own.filter((row) => row.seq === null)).slice(-limit);
  }

  // ---- the connection came, spoke, went ----

  // What belongs to one connection: when the next one comes, the work of the last is void.
  #arrived() {
    this.#leave();
    const session = { ready: false, flush: null, catching: null, again: false, noChanges: false, listed: false, pulls: new Map(), waits: new Map() };
    this.#session = session;
    const flush = () => {
      if (session !== this.#session) return;
      this.#clock.clearTimeout(session.flush);
      session.ready = true;
      this.#pump();
    };
    session.flush = this.#clock.setTimeout(flush, this.#timing.flushWaitMs);
    this.#catchUp(session).then(flush);
  }

  #leave() {
    const session = this.#session;
    if (!session) return;
    this.#session = null;
    this.#clock.clearTimeout(session.flush);
    for (const { timer } of session.waits.values()) this.#clock.clearTimeout(timer);
  }

  #pushed(frame) {
    switch (frame.type) {
      case "push":
      case "notify":
        for (const update of frame.updates) this.#updated(update);
        return;
      case "receipt":
        this.#receipt(frame);
        return;
      case "changed":
        this.#catchUp(this.#session);
        return;
      default: // a newer server may say more than we know
    }
  }

  #updated({ conversationId, messages = [], committedMaxSeq }) {
    const known = this.#ledgers.has(conversationId);
    const ledger = this.#ledger(conversationId);
    this.#take(ledger, messages, () => ledger.push(messages, committedMaxSeq));
    this.#mind(this.#session, ledger, this.#timing.gapWaitMs);
    const named = this.#facts.get(conversationId).peer !== null;
    if (!known && !named && !this.#session.noChanges) this.#catchUp(this.#session);
  }

  #receipt({ conversationId, userId, deliveredSeq = 0, readSeq = 0 }) {
    const ledger = this.#ledgers.get(conversationId);
    if (!ledger) return;
    if (userId === this.userId) {
      if (!this.#raise(ledger, { readSeq })) return;
    } else {
      const { receipts } = this.#facts.get(conversationId);
      const old = receipts[userId] ?? { deliveredSeq: 0, readSeq: 0 };
      receipts[userId] = { deliveredSeq: Math.max(old.deliveredSeq, deliveredSeq, readSeq), readSeq: Math.max(old.readSeq, readSeq) };
    }
    this.#commit({ conversations: [this.#record(ledger)] });
    this.#changed();
  }

  // ---- catching up ----

  // Asks what changed and pulls it, again if asked for meanwhile. The cursor moves last: were it stored
  // before the entries, a crash in between would hide them from every later `changes`.
  #catchUp(session) {
    if (!session || session !== this.#session) return Promise.resolve();
    session.again = true;
    session.catching ??= this.#rounds(session).finally(() => (session.catching = null));
    return session.catching;
  }

  async #rounds(session) {
    for (let failures = 0; session === this.#session && session.again; ) {
      session.again = false;
      try {
        await this.#round(session);
        failures = 0;
      } catch (error) {
        if (session !== this.#session) return;
        if (!error.retryable) {
          this.#log(`could not catch up: ${error.message}`);
          continue;
        }
        session.again = true;
        await this.#sleep(fullJitter(this.#random, failures++, this.#timing));
      }
    }
  }

  async #round(session) {
    const { conversations = [], heads = [], syncCursor } = await this.#changes(session);
    const due = new Set();
    for (const item of conversations) {
      const ledger = this.#describe(item);
      ledger.see(item.lastSeq);
      if (item.lastSeq === undefined || ledger.hasGap) due.add(ledger);
    }
    for (const { conversationId, committedMaxSeq } of heads) this.#ledger(conversationId).see(committedMaxSeq);
    for (const ledger of this.#ledgers.values()) {
      if (ledger.hasGap || session.noChanges) due.add(ledger);
    }
    await this.#pullAll(session, due);
    if (session !== this.#session || syncCursor === undefined) return;
    await this.#commit({ syncCursor });
    this.#syncCursor = syncCursor;
  }

  // A server without `changes`, or one that refuses our cursor, leaves asking about all we know of.
  async #changes(session) {
    if (!session.noChanges) {
      try {
        const changes = await this.#connection.request("changes", { syncCursor: this.#syncCursor ?? 0 });
        return { ...changes, conversations: await this.#withPeers(session, changes.conversations) };
      } catch (error) {
        if (error.retryable) throw error;
        session.noChanges = true;
        if (error.code !== "UNKNOWN_ACTION") this.#log(`could not ask for changes: ${error.message}`);
      }
    }
    return { conversations: await this.#listed() };
  }

  // The id of a single conversation is a hash: whom it is with has to be told, once.
  async #withPeers(session, items = []) {
    const nameless = (item) => isSingle(item.conversationId) && !item.peer && !this.#facts.get(item.conversationId)?.peer;
    if (session.listed || !items.some(nameless)) return items;
    const listed = new Map((await this.#listed()).map((item) => [item.conversationId, item]));
    session.listed = true;
    return items.map((item) => ({ ...listed.get(item.conversationId), ...item }));
  }

  async #listed() {
    const items = [];
    try {
      for (let cursor; ; ) {
        const page = await this.#connection.request("conversations", cursor === undefined ? {} : { cursor });
        items.push(...page.conversations);
        if (page.cursor === undefined || page.cursor === null || page.cursor === "") return items;
        cursor = page.cursor;
      }
    } catch (error) {
      if (error.code === "UNKNOWN_ACTION") return items;
      throw error;
    }
  }

  // A few at a time; one that fails does not keep the others from being pulled.
  async #pullAll(session, due) {
    const queue = [...due];
    let failed = null;
    const work = async () => {
      for (let ledger; session === this.#session && (ledger = queue.shift()); ) {
        await this.#pull(session, ledger).catch((error) => (failed ??= error));
      }
    };
    await Promise.all(Array.from({ length: PULLS_AT_ONCE }, work));
    if (failed) throw failed;
  }

  // Makes sure that a gap is pulled after a wait, unless pushes close it first.
  #mind(session, ledger, waitMs) {
    if (!session || session !== this.#session || session.pulls.has(ledger)) return;
    const due = this.#clock.now() + waitMs;
    const waiting = session.waits.get(ledger);
    if (waiting && ledger.hasGap && waiting.due <= due) return;
    this.#clock.clearTimeout(waiting?.timer);
    session.waits.delete(ledger);
    if (!ledger.hasGap) return;
    const timer = this.#clock.setTimeout(() => {
      session.waits.delete(ledger);
      this.#pull(session, ledger).catch((error) => {
        if (error.retryable) this.#mind(session, ledger, this.#patience(ledger));
      });
    }, waitMs);
    session.waits.set(ledger, { timer, due });
  }

  #patience(ledger) {
    const failures = ledger.failures ?? 0;
    return this.#timing.gapWaitMs + (failures === 0 ? 0 : fullJitter(this.#random, failures, this.#timing));
  }

  // One pull of a conversation at a time; who asks meanwhile shares it.
  #pull(session, ledger) {
    let pull = session.pulls.get(ledger);
    if (!pull) {
      pull = this.#pullOnce(session, ledger);
      session.pulls.set(ledger, pull);
    }
    return pull;
  }

  // Rejects with what is retryable. A refusal (we were removed, say) is final: it must not keep the
  // cursor from moving on.
  async #pullOnce(session, ledger) {
    try {
      await this.#pages(session, ledger);
    } catch (error) {
      ledger.failures = (ledger.failures ?? 0) + 1;
      if (error.retryable) throw error;
      this.#log(`cannot sync ${ledger.conversationId}: ${error.message}`);
      ledger.settle(ledger.maxSeenSeq);
      return;
    } finally {
      session.pulls.delete(ledger);
    }
    this.#mind(session, ledger, this.#patience(ledger)); // what was heard of meanwhile
  }

  // Syncs until the server says that there is no more.
  async #pages(session, ledger) {
    while (session === this.#session) {
      const afterSeq = ledger.maxContiguousSeq;
      const seenWhenAsked = ledger.maxSeenSeq;
      const page = await this.#connection.request("sync", { conversationId: ledger.conversationId, afterSeq, limit: PULL_LIMIT });
      this.#take(ledger, page.messages, () => ledger.page(page));
      if (page.nextSeq >= page.committedMaxSeq) {
        ledger.settle(seenWhenAsked);
        const stuck = ledger.hasGap && ledger.maxSeenSeq === seenWhenAsked;
        ledger.failures = stuck ? (ledger.failures ?? 0) + 1 : 0;
        return;
      }
      if (page.nextSeq <= afterSeq) throw new RequestError({ code: "BUSY", message: "sync did not move", retryable: true });
    }
  }

  // Lets a ledger take something in, stores and shows the outcome. `arrived` may hold more than became
  // showable: an own message above a gap is committed all the same and need not be sent again.
  #take(ledger, arrived, takeIn) {
    const { conversationId, maxContiguousSeq: before } = ledger;
    const changed = takeIn();
    for (const { senderId } of changed) {
      if (isSingle(conversationId) && senderId && senderId !== this.userId) this.#setPeer(conversationId, senderId);
    }
    if (changed.length > 0 || ledger.maxContiguousSeq > before) this.#commit({ messages: changed, conversations: [this.#record(ledger)] });
    for (const { senderId, clientMsgId, seq } of arrived) {
      const entry = senderId === this.userId && this.#outbox.get(clientMsgId);
      if (entry) this.#sent(entry, { conversationId, seq });
    }
    for (const entry of this.#outbox.values()) {
      if (entry.state === "sent" && entry.conversationId === conversationId) this.#forgetShown(entry, ledger);
    }
    this.#changed();
    this.#pump();
  }

  // From here on the ledger's own row stands for the message.
  #forgetShown(entry, ledger) {
    if (entry.seq <= ledger.maxContiguousSeq) this.#outbox.delete(entry.clientMsgId);
  }

  // ---- the outbox ----

  // Sends the oldest unanswered message of each conversation that is not on its way already. Only the
  // oldest: frames of one client may be handled at the same time, in any order.
  #pump() {
    if (!this.#session?.ready) return;
    const taken = new Set();
    for (const entry of this.#outbox.values()) {
      const key = this.#keyOf(entry);
      if (entry.state !== "sending" || taken.has(key)) continue;
      taken.add(key);
      if (entry.stored && entry.busy !== this.#session) this.#transmit(this.#session, entry);
    }
  }

  async #transmit(session, entry) {
    entry.busy = session;
    try {
      const { clientMsgId, clientTime, text, address } = entry;
      this.#sent(entry, await this.#connection.request("send", { ...address, clientMsgId, messageType: "text", text, clientTime }));
    } catch (error) {
      if (entry.state !== "sending") return; // its message arrived before the bad news about its reply
      if (!error.retryable) this.#failed(entry, error);
      else if (session === this.#session) await this.#sleep(fullJitter(this.#random, entry.failures++, this.#timing));
    } finally {
      if (entry.busy === session) entry.busy = null;
      this.#pump();
    }
  }

  #sent(entry, { conversationId, seq, serverTime }) {
    if (entry.address.to !== undefined) this.#setPeer(conversationId, entry.address.to);
    const ledger = this.#ledger(conversationId);
    ledger.see(seq);
    if (entry.state === "sent") return;
    Object.assign(entry, { state: "sent", conversationId, seq, serverTime });
    this.#forgetShown(entry, ledger);
    this.#commit({ outboxDelete: [entry.clientMsgId], conversations: [this.#record(ledger)] });
    this.#mind(this.#session, ledger, this.#timing.ownWaitMs);
    this.#changed();
  }

  #failed(entry, error) {
    entry.state = "failed";
    entry.error = `${error.code}: ${error.message}`;
    this.#commit({ outboxPut: [storedEntry(entry)] });
    this.#changed();
  }

  #keyOf(entry) {
    return entry.conversationId ?? entry.address.conversationId ?? this.keyFor(entry.address.to);
  }

  // ---- what is known of a conversation besides its entries ----

  #ledger(conversationId) {
    let ledger = this.#ledgers.get(conversationId);
    if (!ledger) {
      ledger = new Ledger(conversationId);
      this.#ledgers.set(conversationId, ledger);
      this.#facts.set(conversationId, newFacts());
    }
    return ledger;
  }

  #describe({ conversationId, kind, title, peer, readSeq, clearedSeq }) {
    const ledger = this.#ledger(conversationId);
    const facts = this.#facts.get(conversationId);
    facts.kind = kind ?? facts.kind;
    facts.title = title ?? facts.title;
    if (peer) this.#setPeer(conversationId, peer);
    this.#raise(ledger, { readSeq, clearedSeq });
    this.#commit({ conversations: [this.#record(ledger)] });
    this.#changed();
    return ledger;
  }

  #setPeer(conversationId, userId) {
    this.#ledger(conversationId);
    this.#facts.get(conversationId).peer = userId;
    this.#notePeer(conversationId);
  }

  #notePeer(conversationId) {
    const { peer } = this.#facts.get(conversationId);
    if (peer) this.#peers.set(peer, conversationId);
  }

  // Positions only ever rise. Tells whether one did.
  #raise(ledger, positions) {
    const facts = this.#facts.get(ledger.conversationId);
    let raised = false;
    for (const [name, seq] of Object.entries(positions)) {
      if (!(seq > facts[name])) continue;
      facts[name] = seq;
      raised = true;
    }
    return raised;
  }

  #record({ conversationId, maxContiguousSeq }) {
    return structuredClone({ conversationId, maxContiguousSeq, ...this.#facts.get(conversationId) });
  }

  // ---- rows for people ----

  #summary(key) {
    const facts = this.#facts.get(key) ?? newFacts();
    const peer = key.startsWith(UNSENT_KEY) ? key.slice(UNSENT_KEY.length) : facts.peer;
    const single = peer !== null || isSingle(key);
    return {
      key,
      kind: facts.kind ?? (single ? "single" : key.split(":", 1)[0]),
      peer,
      title: (single ? this.#peerTitle(peer) : facts.title) || key,
      unread: this.#unread(key, facts),
      last: this.messages(key, 1)[0] ?? null,
    };
  }

  #peerTitle(peer) {
    return peer === this.userId ? `${peer} (notes to self)` : peer;
  }

  #unread(key, { readSeq, clearedSeq }) {
    const messages = this.#ledgers.get(key)?.messages ?? [];
    const floor = Math.max(readSeq, clearedSeq);
    let count = 0;
    for (let i = messages.length - 1; i >= 0 && messages[i].seq > floor; i--) {
      if (messages[i].senderId !== this.userId && messages[i].messageType !== "event") count++;
    }
    return count;
  }

  #shown(key, facts, limit) {
    const messages = this.#ledgers.get(key)?.messages ?? [];
    const rows = [];
    for (let i = messages.length - 1; i >= 0 && messages[i].seq > facts.clearedSeq && rows.length < limit; i--) {
      if (!isRevision(messages[i])) rows.push(this.#row(messages[i], facts));
    }
    return rows.reverse();
  }

  #row(message, facts) {
    const mine = message.senderId === this.userId;
    return {
      seq: message.seq,
      clientMsgId: message.clientMsgId,
      senderId: message.senderId,
      mine,
      kind: message.messageType,
      text: message.text ?? "",
      event: message.event ?? null,
      recalled: message.status === "recalled",
      edited: message.version > 1 && message.status !== "recalled",
      time: message.serverTime,
      state: mine ? "sent" : null,
      error: null,
      receipt: mine ? receiptOf(message.seq, facts.receipts) : null,
    };
  }

  #ownRow(entry) {
    return {
      seq: entry.state === "sent" ? entry.seq : null,
      clientMsgId: entry.clientMsgId,
      senderId: this.userId,
      mine: true,
      kind: "text",
      text: entry.text,
      event: null,
      recalled: false,
      edited: false,
      time: entry.serverTime ?? entry.clientTime,
      state: entry.state,
      error: entry.error ?? null,
      receipt: null,
    };
  }

  // ---- small things ----

  // One write after the other. After a failed one nothing is written any more: what is stored stays
  // complete up to there, and a later cursor cannot pass over what is missing.
  #commit(change) {
    this.#writes = this.#writes.then(async () => {
      if (this.storeError) return;
      try {
        await this.#store.commit(change);
      } catch (error) {
        this.storeError = error;
        this.#log(`could not store: ${error.message}`);
        this.#changed();
      }
    });
    return this.#writes;
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  #sleep(ms) {
    return new Promise((resolve) => this.#clock.setTimeout(resolve, ms));
  }
}

function newFacts() {
  return { kind: null, title: null, peer: null, readSeq: 0, clearedSeq: 0, receipts: {} };
}

function notInFlight() {
  return { busy: null, failures: 0 };
}

function storedEntry({ clientMsgId, order, address, text, clientTime, state, error = null }) {
  return { clientMsgId, order, address, text, clientTime, state, error };
}

function isSingle(conversationId) {
  return conversationId.startsWith("single:");
}

// Shown by what they do to their target, not as rows of their own.
function isRevision({ event }) {
  return event?.kind === "recall" || event?.kind === "edit";
}

function receiptOf(seq, receipts) {
  const all = Object.values(receipts);
  if (all.some((receipt) => receipt.readSeq >= seq)) return "read";
  if (all.some((receipt) => receipt.deliveredSeq >= seq)) return "delivered";
  return null;
}

function groupByConversation(messages) {
  const groups = new Map();
  for (const message of messages) {
    if (!groups.has(message.conversationId)) groups.set(message.conversationId, []);
    groups.get(message.conversationId).push(message);
  }
  return groups;
}

function randomHex(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
