// The work of the tab that leads: it keeps every conversation complete and in order, and everything the
// user asked for until the server has answered. Pushes make it fast; sync makes it right.

import { checkOwner, dial, tokenOf } from "./checks.js";
import { Connection, RequestError, TIMING as CONNECTION_TIMING, disconnected, fullJitter, pauseAfter, systemClock } from "./connection.js";
import { SYSTEM, apply, describe, know, raise, receive } from "./facts.js";
import { commitAll } from "./holding.js";
import { LostMessages, identityOf } from "./lost.js";
import { NEW_KEY } from "./model.js";
import { Outbox, anew, recordOf } from "./outbox.js";
import { Pulls } from "./pulls.js";
import { Rosters } from "./rosters.js";
import { RECEIPTS_MAX_MEMBERS } from "./rows.js";
import { FencedError } from "./store.js";
import { Watermarks } from "./watermarks.js";

/**
 * @import { Ledger } from "./ledger.js"
 * @import { Model } from "./model.js"
 * @import { Clock, ConversationKey, Entry, Facts, Lost, Message, Store, StoreChange } from "./types.js"
 */

/** How patient the client is, in ms. */
export const TIMING = Object.freeze({
  ...CONNECTION_TIMING,
  gapWaitMs: 200, // a missing entry is often just late
  memberWaitMs: 2, // for each member: two devices of each make 1,000 pulls a second at most ...
  spreadCapMs: 200_000, // ... of the 100,000 that a crowd may have
  ownWaitMs: 2_000, // our own message is shown already, so its copy may take longer
  flushWaitMs: 5_000, // the outbox waits for the catch-up after a connect, but not for ever
  tellWaitMs: 1_000, // one receipt for what comes together
  // Between two questions of what changed. API Gateway ends a connection after 10 idle minutes, and a timer of a
  // hidden tab fires up to a minute late.
  heartbeatMs: 8.9 * 60_000,
});

export const LIMITS = Object.freeze({
  pull: 100, // entries in a page
  late: 300, // a conversation that is new to this device and longer than this begins with its end ...
  end: 100, // ... of so many entries
  outbox: 1_000, // entries that wait for an answer
  lost: 100, // own messages, the last, that are shown on when the server has lost them
  lostOfOthers: 1_000, // likewise those of others
});

/** @typedef {Partial<Record<keyof typeof TIMING, number>>} Timing in ms */
/** @typedef {Partial<Record<keyof typeof LIMITS, number>>} Limits */

/**
 * What belongs to one connection: when the next one comes, the work of the last is void.
 * @typedef {{flush: any, heartbeat: any, catching: Promise<void> | null, again: boolean, headsCursor?: string}} Session
 */

/**
 * @typedef {object} EngineHooks
 * @property {() => void} changed whenever anything shown may have changed
 * @property {(change: StoreChange) => void} kept what became part of the model for good
 * @property {(conversationId: string, seqs: number[]) => void} news messages of others that have come and are not read
 * @property {() => void} fenced another tab has claimed the store: this engine has to be halted
 */

export class Engine {
  #model;
  #store;
  #term;
  #hooks;
  #userId;
  #deviceId;
  #clock;
  #random;
  #timing;
  #limits;
  #log;
  #connection;
  #outbox;
  #pulls;
  #watermarks;
  #rosters;
  #lost;
  #halted = false;
  #isKnown = false; // whether the token of the connection is known to be the user's: until then nothing is taken in or sent
  #world = {}; // another one once the server was restored or begun anew
  /** @type {Set<ConversationKey>} */
  #onScreen = new Set();
  /** @type {Set<string>} The conversations with entries that were pushed since we last asked what changed. */
  #fresh = new Set();
  /** @type {{resolve: () => void, reject: (error: Error) => void}[]} Who waits for the connection. */
  #waiting = [];
  /** @type {Session | null} */
  #session = null;
  /** @type {Promise<void>} */
  #writes = Promise.resolve();

  /**
   * @param {object} parts
   * @param {Model} parts.model
   * @param {Store} parts.store
   * @param {number} parts.term what the store gave when it was claimed
   * @param {EngineHooks} parts.hooks
   * @param {string} parts.url
   * @param {string} parts.userId
   * @param {string} parts.deviceId
   * @param {() => Promise<string> | string} parts.token gives a JWT for each connect; an error with `permanent` stops
   * @param {typeof globalThis.WebSocket} parts.WebSocket
   * @param {Clock} [parts.clock]
   * @param {() => number} [parts.random]
   * @param {(message: string) => void} [parts.log]
   * @param {Timing} [parts.timing]
   * @param {Limits} [parts.limits]
   */
  constructor({ model, store, term, hooks, url, userId, deviceId, token, WebSocket, clock = systemClock, random = Math.random, log = console.warn, timing = {}, limits = {} }) {
    this.#model = model;
    this.#store = store;
    this.#term = term;
    this.#hooks = hooks;
    this.#userId = userId;
    this.#deviceId = deviceId;
    this.#clock = clock;
    this.#random = random;
    this.#timing = { ...TIMING, ...timing };
    this.#limits = { ...LIMITS, ...limits };
    this.#lost = new LostMessages({ model, userId, limits: this.#limits });
    this.#log = log;
    this.#connection = new Connection({
      clock,
      random,
      log,
      timing,
      hooks: {
        open: async (isWanted) => {
          const { jwt, isKnown } = await tokenOf(token, userId);
          await this.#commit({}); // tells whether another tab leads by now: its connection must not be replaced
          if (this.#halted || !isWanted()) throw new Error("not wanted any more");
          this.#isKnown = isKnown;
          return dial(WebSocket, endpoint(url, deviceId), jwt);
        },
        onOpen: () => this.#arrived(),
        onPush: (frame) => this.#pushed(frame),
        onState: () => this.#stateChanged(),
      },
    });
    /** @type {(action: string, fields?: object) => Promise<any>} */
    const request = (action, fields) => this.#connection.request(action, fields);
    /** @type {(action: string, fields: object) => Promise<any>} */
    const ask = (action, fields) => this.#ask(action, fields);
    const shared = { clock, random, timing: this.#timing };
    this.#outbox = new Outbox({
      ...shared,
      entries: model.entries,
      hooks: {
        request,
        keyOf: (entry) => model.keyOf(entry),
        keep: (entry) => this.#commit({ outboxPut: [recordOf(entry)] }, null),
        answered: (entry, result) => this.#answered(entry, result),
        refused: (entry, error) => this.#refused(entry, error),
      },
    });
    this.#pulls = new Pulls({
      ...shared,
      limit: this.#limits.pull,
      log,
      hooks: {
        request: ask,
        begin: (ledger) => this.#startLate(ledger),
        page: (ledger, page, held) => this.#takePage(ledger, page, held),
        spreadMs: (ledger) => this.#spreadMs(ledger),
        isCurrent: (ledger) => model.ledgers.get(ledger.conversationId) === ledger,
      },
    });
    this.#watermarks = new Watermarks({
      ...shared,
      hooks: {
        request,
        tell: (action, fields) => this.#connection.tell(action, fields),
        confirmed: (conversationId) => this.#fresh.has(conversationId),
        settled: () => this.#writes,
        wanted: (conversationId) => this.#untold(conversationId),
        told: (conversationId, positions) => this.#know(conversationId, positions),
      },
    });
    this.#rosters = new Rosters({ members: model.rosters, request: ask, onChange: () => this.#changed() });
  }

  /** Connects, unless the model's status says that the device is to stay away. */
  start() {
    const { state, detail } = this.#model.status;
    if (state === "offline") this.#connection.stop(detail);
    else this.#connection.start();
    if (this.#model.answered.length > 0) void this.#commit({ outboxDelete: this.#model.answered });
    for (const entry of this.#outbox.all()) {
      if (!entry.stored && entry.state === "sending") void this.#outbox.keep(entry);
    }
  }

  /** Ends: the socket is closed at once, and nothing is written any more that was not asked for yet. */
  halt() {
    this.#halted = true;
    this.#connection.stop(this.#model.status.detail);
  }

  /** Resolves when all that came is stored. */
  settled() {
    return this.#writes;
  }

  /** @param {boolean} offline */
  setOffline(offline) {
    if (offline) this.#connection.stop();
    else this.#connection.start();
  }

  /** @param {number} [quietMs] see Connection */
  retryNow(quietMs) {
    this.#connection.retryNow(quietMs);
  }

  // ---- what the user does ----

  /**
   * Takes what the user asked for, once. Resolves when it is stored.
   * @param {Entry} entry
   */
  async accept(entry) {
    if (this.#model.holds(entry)) {
      await this.#commit({ outboxDelete: [entry.clientMsgId] }); // it was sent by whoever led before
      return;
    }
    const added = this.#outbox.add(entry);
    this.#changed();
    await added;
  }

  /**
   * Puts what the server has lost of a conversation aside.
   * @param {ConversationKey} key
   */
  discardLost(key) {
    const current = this.#model.currentKey(key);
    this.#dropLost((lost) => this.#model.keyOfLost(lost) === current);
  }

  /** @param {string} clientMsgId */
  discard(clientMsgId) {
    const entry = this.#outbox.get(clientMsgId);
    if (!entry) this.#dropLost((lost) => this.#lost.isMine(lost) && lost.message.clientMsgId === clientMsgId);
    if (entry?.state !== "failed") return;
    const outboxDelete = [clientMsgId, ...this.#waitingFor(clientMsgId).map((entry) => entry.clientMsgId)];
    for (const id of outboxDelete) this.#outbox.delete(id);
    void this.#commit({ outboxDelete });
    this.#changed();
  }

  /**
   * Sends what was refused again, after all else, and with a group that could not be made what was meant for
   * it. Gives its clientMsgId, which is a new one if the server would refuse the old one for itself; null if
   * nothing of it was refused.
   * @param {string} clientMsgId
   * @returns {Promise<string | null>}
   */
  async retry(clientMsgId) {
    const entry = this.#outbox.get(clientMsgId);
    if (entry?.state !== "failed") return entry ? clientMsgId : null;
    const group = this.#outbox.get(entry.address.group);
    if (group?.state === "failed") {
      await this.retry(group.clientMsgId);
      return clientMsgId;
    }
    const failed = [entry, ...this.#waitingFor(clientMsgId)].filter(({ state }) => state === "failed");
    const again = failed.map((old) => anew(old, this.#model.entries.values(), this.#clock));
    for (const old of failed) this.#outbox.delete(old.clientMsgId);
    const outboxDelete = failed.filter((old, i) => old.clientMsgId !== again[i].clientMsgId).map((old) => old.clientMsgId);
    if (outboxDelete.length > 0) void this.#commit({ outboxDelete });
    const added = again.map((next) => this.#outbox.add(next));
    this.#changed();
    await Promise.all(added);
    return again[0].clientMsgId;
  }

  /**
   * Says which conversations are on screen: more is kept up to date of them.
   * @param {Set<ConversationKey>} keys
   */
  show(keys) {
    this.#onScreen = keys;
    void this.#attend(this.#session);
  }

  /**
   * Raises the user's own positions in a conversation.
   * @param {string} conversationId
   * @param {{readSeq?: number, clearedSeq?: number}} positions
   */
  raise(conversationId, positions) {
    const ledger = this.#model.ledgers.get(conversationId);
    if (!ledger || !raise(this.#model.factsOf(conversationId), positions)) return;
    this.#keep(ledger);
    this.#watermarks.note(conversationId);
  }

  /**
   * Loads a page of what is before the first entry held. Rejects with a RequestError.
   * @param {ConversationKey} key
   */
  async loadEarlier(key) {
    const ledger = this.#model.ledgers.get(this.#model.currentKey(key));
    if (!ledger || !this.#model.hasEarlier(ledger)) return;
    await this.#reached();
    const { conversationId } = ledger;
    const beforeSeq = ledger.baseSeq + 1;
    const page = await this.#ask("history", { conversationId, beforeSeq, limit: this.#limits.pull });
    if (this.#model.ledgers.get(conversationId) !== ledger) return;
    const messages = ledger.earlier(page, beforeSeq);
    void this.#commit({ messages, conversations: [this.#model.record(ledger)] });
    this.#changed();
  }

  /**
   * Who has received and who has read a message. Rejects with a RequestError.
   * @param {ConversationKey} key
   * @param {number} seq
   */
  async receipts(key, seq) {
    await this.#reached();
    const conversationId = this.#model.currentKey(key);
    /** @type {{delivered: string[], read: string[]}} */
    const all = { delivered: [], read: [] };
    let cursor = "";
    do {
      const page = await this.#ask("receipts", { conversationId, seq, ...(cursor && { cursor }) });
      all.delivered.push(...page.delivered);
      all.read.push(...page.read);
      cursor = page.cursor ?? "";
    } while (cursor);
    return all;
  }

  // ---- the connection came, spoke, went ----

  // Resolves when there is a connection, and rejects if there is to be none.
  #reached() {
    const state = this.#state;
    if (state === "online") return Promise.resolve();
    if (state === "offline") return Promise.reject(disconnected());
    return new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  // A connection is of use once the user is known.
  get #state() {
    const { state } = this.#connection;
    return state === "online" && !this.#isKnown ? "connecting" : state;
  }

  #stateChanged() {
    if (this.#connection.state !== "online") this.#leave();
    const now = this.#state;
    if (now !== "connecting") {
      for (const { resolve, reject } of this.#waiting.splice(0)) now === "online" ? resolve() : reject(disconnected());
    }
    if (this.#halted) return;
    const { detail } = this.#connection;
    const state = this.#state;
    this.#model.status = { ...this.#model.status, state, detail };
    if (detail === "replaced") void this.#commit({}); // tells whether it was another tab, which claimed the store before
    this.#changed();
  }

  #arrived() {
    this.#leave();
    /** @type {Session} */
    const session = { flush: null, heartbeat: null, catching: null, again: false };
    this.#session = session;
    if (this.#isKnown) this.#begin(session);
    void this.#catchUp(session).then(() => this.#flush(session));
  }

  // From here on the connection is the user's.
  /** @param {Session} session */
  #begin(session) {
    this.#pulls.start();
    this.#watermarks.start();
    for (const conversationId of this.#model.ledgers.keys()) this.#watermarks.note(conversationId);
    session.flush = this.#clock.setTimeout(() => this.#flush(session), this.#timing.flushWaitMs);
  }

  /** @param {Session} session */
  #flush(session) {
    if (session !== this.#session || session.flush === null) return;
    this.#clock.clearTimeout(session.flush);
    session.flush = null;
    this.#outbox.resume();
  }

  // Takes whom the server takes the user for. Throws for good if it is another one.
  /**
   * @param {Session} session
   * @param {string | undefined} owner
   */
  #identify(session, owner) {
    if (owner !== undefined) checkOwner(owner, this.#userId);
    if (this.#isKnown) return;
    if (owner === undefined) throw new RequestError({ code: "PROTOCOL", message: "changes did not name the user, and the token is none that does", retryable: true });
    this.#isKnown = true;
    this.#begin(session);
    this.#stateChanged();
  }

  #leave() {
    this.#outbox.pause();
    this.#pulls.stop();
    this.#watermarks.stop();
    this.#clock.clearTimeout(this.#session?.flush);
    this.#clock.clearTimeout(this.#session?.heartbeat);
    this.#session = null;
  }

  /** @param {any} frame */
  #pushed(frame) {
    if (!this.#isKnown) {
      if (this.#session) this.#session.again = true; // it may be another user's; if not, the next answer tells of it
      return;
    }
    switch (frame.type) {
      case "push":
      case "notify":
        for (const update of frame.updates) this.#updated(update);
        return;
      case "receipt":
        this.#receipt(frame);
        return;
      case "changed":
        void this.#catchUp(this.#session);
        return;
      default: // a newer server may say more than we know
    }
  }

  /** @param {{conversationId: string, messages?: Message[], committedMaxSeq: number}} update */
  #updated({ conversationId, messages = [], committedMaxSeq }) {
    const ledger = this.#model.ledger(conversationId);
    this.#fresh.add(conversationId);
    this.#take(ledger, messages, () => ledger.push(messages, committedMaxSeq));
    if (this.#model.ledgers.get(conversationId) !== ledger) return; // all is begun anew
    this.#pulls.mind(ledger, this.#timing.gapWaitMs);
    this.#getToKnow(conversationId);
  }

  // Asks what a conversation is of which only entries are known.
  /** @param {string} conversationId */
  #getToKnow(conversationId) {
    const { kind, title, peer } = this.#model.factsOf(conversationId);
    if (kind === null && title === null && peer === null) void this.#catchUp(this.#session);
  }

  /** @param {{conversationId: string, userId: string, deliveredSeq?: number, readSeq?: number}} frame */
  #receipt({ conversationId, userId, ...positions }) {
    const { deliveredSeq = 0, readSeq = 0 } = positions;
    if (userId === this.#userId) {
      this.#know(conversationId, { deliveredSeq, readSeq });
      return;
    }
    const ledger = this.#model.ledgers.get(conversationId);
    if (!ledger) return;
    receive(this.#model.factsOf(conversationId), userId, { deliveredSeq, readSeq });
    this.#keep(ledger);
  }

  // ---- catching up ----

  // Asks what changed and pulls it, again if asked for meanwhile. The cursor moves last: were it stored
  // before the entries, a crash in between would hide them from every later `changes`.
  /** @param {Session | null} session */
  #catchUp(session) {
    if (!session || session !== this.#session) return Promise.resolve();
    session.again = true;
    session.catching ??= this.#catchUpAll(session).finally(() => (session.catching = null));
    return session.catching;
  }

  /** @param {Session} session */
  async #catchUpAll(session) {
    for (let failures = 0; session === this.#session && session.again; ) {
      session.again = false;
      try {
        await this.#round(session);
        failures = 0;
      } catch (thrown) {
        if (session !== this.#session) return;
        const error = /** @type {any} */ (thrown);
        if (error.permanent) return this.#connection.stop(error.message);
        if (!error.retryable) {
          this.#log(`could not catch up: ${error.message}`);
          continue;
        }
        session.again = true;
        await this.#sleep(fullJitter(this.#random, failures++, this.#timing));
      }
    }
    if (session !== this.#session) return;
    this.#scheduleHeartbeat(session);
    void this.#attend(session);
  }

  // Asking what changed keeps the connection, tells that it is dead if it is, and finds what the last push into a
  // quiet conversation told, if that was lost.
  /** @param {Session} session */
  #scheduleHeartbeat(session) {
    this.#clock.clearTimeout(session.heartbeat);
    session.heartbeat = this.#clock.setTimeout(() => void this.#catchUp(session), this.#timing.heartbeatMs);
  }

  /** @param {Session} session */
  async #round(session) {
    const world = this.#world;
    const asked = this.#model.syncCursor ?? 0;
    const held = new Map([...this.#model.ledgers.values()].map((ledger) => [ledger.conversationId, ledger.maxContiguousSeq]));
    this.#fresh.clear();
    const changes = await this.#changes(session, asked);
    this.#fresh.clear(); // what came meanwhile may be in the answer, and not told of again
    if (session !== this.#session || world !== this.#world) return;
    if (changes.syncCursor < asked || this.#contradicts(changes, held)) {
      this.#startOver();
      return;
    }
    const { conversations, heads = [], syncCursor } = changes;
    const windows = changes.windows ?? {};
    if (JSON.stringify(windows) !== JSON.stringify(this.#model.status.windows)) this.#model.status = { ...this.#model.status, windows };
    for (const line of conversations) this.#describe(line).see(line.lastSeq);
    for (const { conversationId, committedMaxSeq } of heads) this.#model.ledger(conversationId).see(committedMaxSeq);
    this.#changed();
    await this.#pulls.all([...this.#model.ledgers.values()].filter((ledger) => ledger.hasGap));
    if (session !== this.#session || world !== this.#world) return;
    const settled = changes.more ? {} : this.#settleLost();
    this.#model.syncCursor = syncCursor;
    session.headsCursor = changes.headsCursor;
    session.again ||= Boolean(changes.more);
    await this.#commit({ syncCursor, ...settled });
  }

  /**
   * @param {Session} session
   * @param {number} syncCursor
   */
  async #changes(session, syncCursor) {
    const hidden = this.#model.ledgers.size > 0; // what was hidden elsewhere has to be told to who may show it
    const changes = await this.#ask("changes", { syncCursor, headsCursor: session.headsCursor, hidden });
    if (session !== this.#session) throw disconnected();
    this.#identify(session, changes.userId);
    const conversations = [...changes.conversations];
    for (let { cursor } = changes; cursor; ) {
      const page = await this.#ask("conversations", { cursor, hidden });
      conversations.push(...page.conversations);
      cursor = page.cursor;
    }
    return { ...changes, conversations };
  }

  // Asks for what the device pulls. One that is too fast is told for how long to wait and does so here, in
  // its place among the pulls: what the others asked meanwhile would be refused as well.
  /**
   * @param {string} action
   * @param {object} fields
   */
  async #ask(action, fields) {
    const session = this.#session;
    for (let failures = 0; ; ) {
      try {
        return await this.#connection.request(action, fields);
      } catch (thrown) {
        const error = /** @type {any} */ (thrown);
        if (!(error.details?.retryAfterMs > 0)) throw error;
        await this.#sleep(pauseAfter(error, this.#random, failures++, this.#timing));
        if (session !== this.#session) throw error;
      }
    }
  }

  // Whether the server knows less of a conversation than we held when we asked, or something else.
  /**
   * @param {{conversations: any[], heads?: any[], full: boolean}} changes
   * @param {Map<string, number>} held
   */
  #contradicts({ conversations, heads = [], full }, held) {
    const listed = new Set(conversations.map(({ conversationId }) => conversationId));
    const missing = full && [...held].some(([conversationId, seq]) => seq > 0 && !listed.has(conversationId));
    return (
      missing ||
      heads.some(({ conversationId, committedMaxSeq }) => committedMaxSeq < (held.get(conversationId) ?? 0)) ||
      conversations.some(({ conversationId, lastSeq, lastMessage }) => {
        const same = lastMessage && this.#model.ledgers.get(conversationId)?.get(lastMessage.seq);
        return lastSeq < (held.get(conversationId) ?? 0) || (same && same.serverTime !== lastMessage.serverTime);
      })
    );
  }

  // Whether one of these entries of the server is held here as another one.
  /**
   * @param {Ledger | undefined} ledger
   * @param {{seq: number, messageId: string}[]} entries
   */
  #isReplaced(ledger, entries) {
    return entries.some(({ seq, messageId }) => (ledger?.get(seq)?.messageId ?? messageId) !== messageId);
  }

  // The server was restored, or begun anew: what is held here is of another world. What the user wrote
  // stays, whether it is answered or, see lost.js, not there any more.
  #startOver() {
    this.#log("the server's conversations are not those held here any more: starting over");
    this.#world = {};
    this.#lost.doubt(this.#outbox.all());
    this.#model.status = { ...this.#model.status, inDoubt: true };
    for (const entry of this.#outbox.all()) {
      const peer = this.#model.facts.get(entry.address.conversationId ?? "")?.peer;
      if (entry.state === "sent") this.#outbox.delete(entry.clientMsgId);
      else if (entry.action === "send" && peer) entry.address = { to: peer }; // it may have to be made anew
    }
    this.#model.forget();
    if (this.#session) {
      this.#pulls.start();
      this.#watermarks.start();
    }
    void this.#commit({ forget: true, outboxPut: this.#outbox.all().map(recordOf), lost: this.#lost.all() });
    this.#changed();
    void this.#catchUp(this.#session);
  }

  // What the server turned out to have lost is shown from here on. Gives what is to be stored.
  /** @returns {StoreChange} */
  #settleLost() {
    if (!this.#model.status.inDoubt) return {};
    this.#model.status = { ...this.#model.status, inDoubt: false };
    const again = this.#lost.settle();
    this.#changed();
    return { lost: this.#lost.all(), outboxPut: again.map(recordOf) };
  }

  // Puts lost messages aside for good.
  /** @param {(lost: Lost) => boolean} isAside */
  #dropLost(isAside) {
    if (!this.#lost.drop(isAside)) return;
    void this.#commit({ lost: this.#lost.all() });
    this.#changed();
  }

  // Nobody waits for ten thousand entries to read the last ten.
  /** @param {Ledger} ledger */
  #startLate(ledger) {
    const { clearedSeq } = this.#model.factsOf(ledger.conversationId);
    if (ledger.maxContiguousSeq > 0 || ledger.maxSeenSeq - clearedSeq <= this.#limits.late) return;
    ledger.startAfter(Math.max(ledger.maxSeenSeq - this.#limits.end, clearedSeq));
    this.#rosters.invalidate(ledger.conversationId); // an event that is passed over may have changed it
  }

  /**
   * @param {Ledger} ledger
   * @param {any} page
   * @param {number} held how far the ledger was complete when the page was asked for
   */
  #takePage(ledger, page, held) {
    if (page.committedMaxSeq < held) return this.#startOver();
    if (page.firstSeq !== undefined) this.#rosters.invalidate(ledger.conversationId); // by an entry that is hidden from us
    this.#take(ledger, page.messages, () => ledger.page(page));
    queueMicrotask(() => this.#changed()); // after the last page the ledger settles
  }

  /** @param {Ledger} ledger */
  #spreadMs({ conversationId }) {
    const { memberCount = 0 } = this.#model.facts.get(conversationId) ?? {};
    return Math.min(memberCount * this.#timing.memberWaitMs, this.#timing.spreadCapMs);
  }

  // Lets a ledger take something in, stores and shows the outcome. `arrived` may hold more than became
  // showable: an own message above a gap is committed all the same and need not be sent again.
  /**
   * @param {Ledger} ledger
   * @param {Message[]} arrived
   * @param {() => Message[]} takeIn
   */
  #take(ledger, arrived, takeIn) {
    if (this.#isReplaced(ledger, arrived)) return this.#startOver();
    const { conversationId, maxContiguousSeq: before } = ledger;
    const changed = takeIn();
    this.#learn(conversationId, changed);
    if (changed.length > 0 || ledger.maxContiguousSeq > before) void this.#commit({ messages: changed, conversations: [this.#model.record(ledger)] });
    for (const { senderId, clientMsgId, seq, messageId, serverTime } of arrived) {
      const entry = senderId === this.#userId ? this.#outbox.get(clientMsgId) : undefined;
      if (entry) this.#sent(entry, { conversationId, seq, messageId, serverTime });
    }
    for (const entry of this.#outbox.all()) {
      if (entry.state === "sent" && entry.conversationId === conversationId) this.#forgetShown(entry, ledger);
    }
    if (this.#lost.all().length > 0) {
      const there = new Set(changed.map(identityOf));
      this.#dropLost(({ message }) => there.has(identityOf(message))); // it was sent again
    }
    this.#watermarks.note(conversationId);
    this.#changed();
    this.#outbox.pump();
    this.#tellNews(ledger, changed.filter(({ seq }) => seq > before));
  }

  // To a device that is new or starts over everything is, so nothing is told.
  /**
   * @param {Ledger} ledger
   * @param {Message[]} fresh
   */
  #tellNews({ conversationId }, fresh) {
    const { readSeq, clearedSeq } = this.#model.factsOf(conversationId);
    const isNews = (/** @type {Message} */ { seq, senderId, messageType, status }) =>
      seq > Math.max(readSeq, clearedSeq) && senderId !== this.#userId && messageType !== "event" && status !== "recalled";
    const seqs = fresh.filter(isNews).map(({ seq }) => seq);
    if (seqs.length > 0 && this.#model.syncCursor !== null && !this.#halted) this.#hooks.news(conversationId, seqs);
  }

  // Takes in what entries tell of the conversation itself.
  /**
   * @param {string} conversationId
   * @param {Message[]} entries
   */
  #learn(conversationId, entries) {
    const facts = this.#model.factsOf(conversationId);
    for (const entry of entries) {
      const { senderId } = entry;
      if (isSingle(conversationId) && facts.peer === null && senderId && senderId !== this.#userId && isOfPerson(entry)) this.#model.setPeer(conversationId, senderId);
      const { roster, joined } = apply(facts, entry, this.#userId);
      if (entry.event?.kind === "erase") this.#dropLost(({ message }) => message.conversationId === conversationId && message.senderId === entry.event?.erased);
      if (roster) this.#rosters.invalidate(conversationId);
      if (joined) void this.#catchUp(this.#session);
      if ((roster || this.#answersUs(entry)) && this.#isOnScreen(conversationId)) void this.#attend(this.#session);
    }
  }

  // Whether an entry is the first of the other one of a single conversation: only now are we told how far that
  // one is with what we wrote.
  /** @param {Message} entry */
  #answersUs({ conversationId, seq }) {
    if (!isSingle(conversationId)) return false;
    return this.#model.ledger(conversationId).messages.find(({ senderId }) => senderId !== this.#userId)?.seq === seq;
  }

  // From here on the ledger's own row stands for the entry.
  /**
   * @param {Entry} entry
   * @param {Ledger} ledger
   */
  #forgetShown(entry, ledger) {
    if ((entry.seq ?? Infinity) <= ledger.maxContiguousSeq) this.#outbox.delete(entry.clientMsgId);
  }

  // ---- the conversation on screen ----

  // Gets what only people who look at a conversation need: who is in it, and how far the others are. What
  // fails is asked for again with the next catch-up.
  /** @param {Session | null} session */
  async #attend(session) {
    if (!session || session !== this.#session || !this.#isKnown) return;
    const conversationIds = new Set([...this.#onScreen].map((key) => this.#model.currentKey(key)));
    await Promise.all([...conversationIds].map((conversationId) => this.#attendTo(conversationId)));
  }

  /** @param {string} conversationId */
  async #attendTo(conversationId) {
    const facts = this.#model.facts.get(conversationId);
    if (!facts || facts.leftSeq > 0 || isSystem(conversationId)) return;
    try {
      if (isGroup(conversationId)) await this.#rosters.refresh(conversationId);
      await this.#lookUpReceipts(conversationId, facts);
    } catch (thrown) {
      const error = /** @type {any} */ (thrown);
      if (!error.retryable) this.#log(`cannot look up ${conversationId}: ${error.message}`);
    }
  }

  // Receipts are pushed once. What was pushed while we were away is looked up for the last own message.
  /**
   * @param {string} conversationId
   * @param {Facts} facts
   */
  async #lookUpReceipts(conversationId, facts) {
    if (facts.memberCount > RECEIPTS_MAX_MEMBERS || facts.peer === this.#userId) return;
    const last = this.#model.messages(conversationId).findLast(({ mine, seq, kind, recalled }) => mine && seq !== null && kind !== "event" && !recalled);
    if (!last || last.seq === null || last.receipt === "read") return;
    const { seq } = last;
    const { delivered, read } = await this.receipts(conversationId, seq);
    if (this.#model.factsOf(conversationId) !== facts) return;
    for (const userId of delivered) receive(facts, userId, { deliveredSeq: seq });
    for (const userId of read) receive(facts, userId, { readSeq: seq });
    this.#keep(this.#model.ledger(conversationId));
  }

  /** @param {string} conversationId */
  #isOnScreen(conversationId) {
    return [...this.#onScreen].some((key) => this.#model.currentKey(key) === conversationId);
  }

  // ---- the outbox ----

  /**
   * @param {Entry} entry
   * @param {any} result
   */
  #answered(entry, result) {
    if (entry.action === "createGroup") {
      this.#describe(result);
      this.#sent(entry, { conversationId: result.conversationId, seq: 1 }); // a group begins with its making
    } else if (this.#isReplaced(this.#model.ledgers.get(result.conversationId), [result])) {
      this.#startOver(); // and it is answered again
    } else if (entry.action === "send" && !result.duplicate) {
      const ledger = this.#model.ledger(result.conversationId);
      const message = this.#messageOf(entry, result);
      if (entry.address.to !== undefined) this.#model.setPeer(result.conversationId, entry.address.to);
      this.#take(ledger, [message], () => ledger.push([message], result.seq));
      this.#getToKnow(result.conversationId);
    } else this.#sent(entry, result);
  }

  // The first answer to a send tells all of the message: it is not pushed to this connection.
  /**
   * @param {Entry} entry
   * @param {{conversationId: string, seq: number, messageId: string, serverTime: number}} result
   * @returns {Message}
   */
  #messageOf({ clientMsgId, fields, text, clientTime }, { conversationId, seq, messageId, serverTime }) {
    const content = { ...fields, ...(text && { text }) };
    const by = { clientMsgId, senderId: this.#userId, senderDeviceId: this.#deviceId, clientTime };
    return { messageType: "text", ...content, ...by, conversationId, seq, messageId, serverTime, version: 1, status: "normal" };
  }

  /**
   * @param {Entry} entry
   * @param {{conversationId: string, seq: number, messageId?: string, serverTime?: number}} result
   */
  #sent(entry, { conversationId, seq, messageId, serverTime }) {
    if (entry.address.to !== undefined) this.#model.setPeer(conversationId, entry.address.to);
    const ledger = this.#model.ledger(conversationId);
    ledger.see(seq);
    if (entry.state === "sent") return;
    Object.assign(entry, { state: "sent", conversationId, seq, messageId, serverTime });
    const waiting = entry.action === "createGroup" ? this.#nameGroup(entry.clientMsgId, conversationId) : [];
    this.#forgetShown(entry, ledger);
    void this.#commit({ outboxDelete: [entry.clientMsgId], outboxPut: waiting.map(recordOf), conversations: [this.#model.record(ledger)] });
    this.#pulls.mind(ledger, this.#timing.ownWaitMs);
    this.#changed();
  }

  // Gives what was meant for a group that was still to be made its address.
  /**
   * @param {string} clientMsgId
   * @param {string} conversationId
   */
  #nameGroup(clientMsgId, conversationId) {
    this.#model.created.set(clientMsgId, conversationId);
    if (this.#onScreen.has(NEW_KEY + clientMsgId)) void this.#attend(this.#session);
    const waiting = this.#waitingFor(clientMsgId);
    for (const entry of waiting) entry.address = { conversationId };
    return waiting;
  }

  // What is meant for a group that is still to be made.
  /** @param {string} clientMsgId */
  #waitingFor(clientMsgId) {
    return this.#outbox.all().filter(({ address }) => address.group === clientMsgId);
  }

  /**
   * @param {Entry} entry
   * @param {any} error
   */
  #refused(entry, error) {
    const waiting = this.#waitingFor(entry.clientMsgId);
    this.#fail(entry, error);
    for (const other of waiting) this.#fail(other, { code: "NOT_FOUND", message: "the group could not be made", retryable: false });
    void this.#commit({ outboxPut: [entry, ...waiting].map(recordOf) });
    this.#changed();
  }

  /**
   * @param {Entry} entry
   * @param {import("./types.js").Refusal} error
   */
  #fail(entry, { code, message, retryable }) {
    Object.assign(entry, { state: "failed", error: { code, message, retryable } });
  }

  // ---- what is known of a conversation besides its entries ----

  /** @param {any} line of the user's list */
  #describe(line) {
    const ledger = this.#model.ledger(line.conversationId);
    const facts = this.#model.factsOf(line.conversationId);
    describe(facts, line);
    this.#watermarks.note(line.conversationId);
    this.#model.notePeer(line.conversationId);
    if (facts.leftSeq > 0) this.#rosters.forget(line.conversationId);
    this.#keep(ledger);
    return ledger;
  }

  /**
   * @param {string} conversationId
   * @param {{deliveredSeq?: number, readSeq?: number, clearedSeq?: number}} positions
   */
  #know(conversationId, positions) {
    const ledger = this.#model.ledgers.get(conversationId);
    if (!ledger) return;
    know(this.#model.factsOf(conversationId), positions);
    this.#keep(ledger);
  }

  // How far we are beyond what the server knows, if that tells it of anything that others wrote: it knows who
  // wrote what, and our own entries are unread to none of our devices.
  /** @param {string} conversationId */
  #untold(conversationId) {
    const ledger = this.#model.ledgers.get(conversationId);
    if (!ledger) return {};
    const { told, readSeq, clearedSeq } = this.#model.factsOf(conversationId);
    const { maxContiguousSeq: deliveredSeq } = ledger;
    return {
      ...(ledger.newsFor(this.#userId, told.deliveredSeq) && { deliveredSeq }),
      ...(readSeq > told.readSeq && readSeq - told.readSeq > ledger.countBy(this.#userId, told.readSeq, readSeq, []) && { readSeq }),
      ...(clearedSeq > told.clearedSeq && { clearedSeq }),
    };
  }

  /** @param {Ledger} ledger */
  #keep(ledger) {
    void this.#commit({ conversations: [this.#model.record(ledger)] });
    this.#changed();
  }

  // ---- small things ----

  // One write after the other. After a failed one nothing is written any more: what is stored stays
  // complete up to there, and a later cursor cannot pass over what is missing.
  /**
   * @param {StoreChange} change
   * @param {number | null} [term] null for what any tab may write: a new entry of the outbox
   */
  #commit(change, term = this.#term) {
    this.#writes = this.#writes.then(async () => {
      await this.#write(change, term);
      if (!this.#halted) this.#hooks.kept(change);
    });
    return this.#writes;
  }

  /**
   * @param {StoreChange} change
   * @param {number | null} term
   */
  async #write(change, term) {
    if (this.#model.status.storeError || (this.#halted && term !== null)) return;
    try {
      await commitAll(this.#store, change, term ?? undefined, this.#log);
    } catch (thrown) {
      const error = /** @type {Error} */ (thrown);
      if (error instanceof FencedError) {
        this.#hooks.fenced();
        return;
      }
      this.#model.status = { ...this.#model.status, storeError: { name: error.name, message: error.message } };
      this.#log(`could not store: ${error.message}`);
      this.#changed();
    }
  }

  #changed() {
    if (!this.#halted) this.#hooks.changed();
  }

  /** @param {number} ms */
  #sleep(ms) {
    return new Promise((resolve) => this.#clock.setTimeout(() => resolve(undefined), ms));
  }
}

/**
 * @param {string} url
 * @param {string} deviceId
 */
function endpoint(url, deviceId) {
  const target = new URL(url);
  target.searchParams.set("device", deviceId);
  return target.href;
}

/** @param {string} conversationId */
function isSingle(conversationId) {
  return conversationId.startsWith("single:");
}

// An event may be of anyone, the product or an operator: who the other one is, it does not tell.
/** @param {Message} message */
function isOfPerson({ senderId, event, messageType }) {
  return senderId !== SYSTEM && messageType !== "system" && messageType !== "event" && !event;
}

/** @param {string} conversationId */
function isGroup(conversationId) {
  return conversationId.startsWith("group:");
}

/** @param {string} conversationId */
function isSystem(conversationId) {
  return conversationId.startsWith("system:");
}
