// The client of one device: it keeps every conversation complete and in order, and everything the user
// asked for until the server has answered. Pushes make it fast; sync makes it right.

import { Connection, TIMING as CONNECTION_TIMING, fullJitter, systemClock } from "./connection.js";
import { apply, describe, know, newFacts, raise, receive, unreadIn } from "./facts.js";
import { Ledger } from "./ledger.js";
import { Outbox, recordOf } from "./outbox.js";
import { Pulls } from "./pulls.js";
import { may } from "./rights.js";
import { Rosters } from "./rosters.js";
import { RECEIPTS_MAX_MEMBERS, rowsOf } from "./rows.js";
import { Watermarks } from "./watermarks.js";

/** The most text one message holds, counted in code points as the server counts runes. */
export const MAX_TEXT_RUNES = 4000;

/** The longest title of a group, counted in the same way. */
export const MAX_TITLE_RUNES = 100;

export const TIMING = Object.freeze({
  ...CONNECTION_TIMING,
  gapWaitMs: 200, // a missing entry is often just late
  ownWaitMs: 2_000, // our own message is shown already, so its copy may take longer
  flushWaitMs: 5_000, // the outbox waits for the catch-up after a connect, but not for ever
  tellWaitMs: 300, // one receipt for what comes together
});

export const LIMITS = Object.freeze({
  pull: 100, // entries in a page
  late: 300, // a conversation that is new to this device and longer than this begins with its end ...
  end: 100, // ... of so many entries
});

const TO_KEY = "to:";
const NEW_KEY = "new:";

/** Counts text as the server does. */
export function countRunes(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/**
 * A conversation is named by a key: its conversationId, or, until the server has named it, what keyFor
 * or createGroup gives. All of them are good for every method for ever, createGroup's until a reload.
 *
 * What the user asks for (send, createGroup, addMembers, …, recall, edit) is put into the outbox and
 * gives its clientMsgId once it is stored; it is sent, and resent, until the server answers. Until then,
 * and if it is refused, messages shows it.
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
  #limits;
  #log;
  #connection;
  #outbox;
  #pulls;
  #watermarks;
  #rosters;
  #ledgers = new Map();
  #facts = new Map(); // conversationId → what else is known of it, see facts.js
  #peers = new Map(); // userId → conversationId of the single conversation
  #created = new Map(); // clientMsgId of a createGroup → conversationId
  #openKey = null;
  #syncCursor = null;
  #session = null;
  #writes = Promise.resolve();

  /** getToken gives a fresh JWT for each connect (a promise); an error with `permanent` stops. */
  constructor({ url, userId, deviceId, getToken, store, WebSocket = globalThis.WebSocket, clock = systemClock, random = Math.random, log = console.warn, timing = {}, limits = {} }) {
    super();
    this.userId = userId;
    this.deviceId = deviceId;
    this.#store = store;
    this.#clock = clock;
    this.#random = random;
    this.#timing = { ...TIMING, ...timing };
    this.#limits = { ...LIMITS, ...limits };
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
    const request = (action, fields) => this.#connection.request(action, fields);
    const shared = { clock, random, timing: this.#timing };
    this.#outbox = new Outbox({
      ...shared,
      deviceId,
      hooks: {
        request,
        keyOf: (entry) => this.#keyOf(entry),
        commit: (change) => this.#commit(change),
        answered: (entry, result) => this.#answered(entry, result),
        refused: (entry, error) => this.#refused(entry, error),
      },
    });
    this.#pulls = new Pulls({
      ...shared,
      limit: this.#limits.pull,
      log,
      hooks: {
        request,
        begin: (ledger) => this.#startLate(ledger),
        page: (ledger, page) => this.#takePage(ledger, page),
        isCurrent: (ledger) => this.#ledgers.get(ledger.conversationId) === ledger,
      },
    });
    this.#watermarks = new Watermarks({
      ...shared,
      hooks: {
        request,
        settled: () => this.#writes,
        wanted: (conversationId) => this.#untold(conversationId),
        told: (conversationId, positions) => this.#know(conversationId, positions),
      },
    });
    this.#rosters = new Rosters({ request, onChange: () => this.#changed() });
  }

  /** "connecting", "online" or "offline". */
  get state() {
    return this.#connection.state;
  }

  /**
   * Why the state is so, for people. When the server sent us away for good it is the goodbye's reason:
   * "replaced" by a newer connection of this device, or one of too many "devices".
   */
  get detail() {
    return this.#connection.detail;
  }

  /** Loads what the store has and connects. */
  async start() {
    const saved = await this.#store.load();
    this.#syncCursor = saved.syncCursor;
    const messages = groupByConversation(saved.messages);
    for (const { conversationId, baseSeq, maxContiguousSeq, ...facts } of saved.conversations) {
      this.#ledgers.set(conversationId, new Ledger(conversationId, { baseSeq, maxContiguousSeq, messages: messages.get(conversationId) }));
      this.#facts.set(conversationId, { ...newFacts(), ...facts });
      this.#notePeer(conversationId);
    }
    this.#outbox.load(saved.outbox);
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

  // ---- what is there ----

  /** The key of the conversation with a user, known to the server or not. */
  keyFor(userId) {
    return this.#peers.get(userId) ?? TO_KEY + userId;
  }

  /** The key a conversation has now; it changes when the server names the conversation. */
  currentKey(key) {
    if (key.startsWith(TO_KEY)) return this.keyFor(key.slice(TO_KEY.length));
    if (key.startsWith(NEW_KEY)) return this.#created.get(key.slice(NEW_KEY.length)) ?? key;
    return key;
  }

  /**
   * The conversations, most recent first: {key, kind, title, peer, memberCount, closed, role, earlier,
   * unread, last, time}. closed says why nothing can be written: "system", "left", "dissolved", "failed"
   * (a group that could not be made), "unknown" (there is no such conversation) or null. role is ours in
   * a group. earlier: there is more to load. last is a row as in messages, or null.
   */
  conversations() {
    const keys = new Set(this.#ledgers.keys());
    for (const entry of this.#outbox.all()) keys.add(this.#keyOf(entry));
    return [...keys].map((key) => this.#summary(key)).sort((a, b) => b.time - a.time);
  }

  /** One conversation as in conversations, also for a key that nothing was sent to yet. */
  conversation(key) {
    return this.#summary(this.currentKey(key));
  }

  /**
   * The last `limit` rows of a conversation in order, what the server has not numbered yet at the end:
   * {seq, messageId, clientMsgId, senderId, mine, kind, text, event, quote, recalled, edited, revision,
   * time, state, error, receipt, readBy, audience}.
   * For our own, state is "sending", "sent" or "failed"; receipt, readBy and audience say how far the
   * others are (see receiptsOf in rows.js). quote is the message that this one answers, {seq, senderId,
   * kind, text, recalled} with senderId null if it is not at hand. revision is the recall or edit we
   * asked for and do not see yet, {clientMsgId, action, state, text, error}.
   */
  messages(key, limit = Infinity) {
    return rowsOf(this.#view(this.currentKey(key)), limit);
  }

  /** The members of a group, [{userId, role, joinedAt}], or null while unknown; open makes them known. */
  members(key) {
    return this.#rosters.of(this.currentKey(key));
  }

  /** Whether we may do something in a group, as far as is known; see rights.js. */
  may(key, action, target) {
    const { closed, role } = this.conversation(key);
    return closed === null && may(role, action, target);
  }

  // ---- what the user does ----

  /** Sends a text, as the answer to the row replyTo if there is one. A RangeError says what is wrong with the text. */
  async send(key, text, { replyTo = null } = {}) {
    checkText(text);
    const fields = { messageType: "text", ...(replyTo && { replyTo: { seq: replyTo.seq, messageId: replyTo.messageId } }) };
    return this.#ask("send", this.#addressOf(this.currentKey(key)), fields, text);
  }

  /** Makes a group of us and the members, and gives its key at once. A RangeError says what is wrong with the title. */
  createGroup(title, members) {
    checkTitle(title);
    const { entry } = this.#outbox.add({ action: "createGroup", address: {}, fields: { title, members } });
    this.#changed();
    return NEW_KEY + entry.clientMsgId;
  }

  async addMembers(key, members) {
    return this.#change("addMembers", key, { members });
  }

  async removeMembers(key, members) {
    return this.#change("removeMembers", key, { members });
  }

  async leave(key) {
    return this.#change("leave", key);
  }

  async setRole(key, userId, role) {
    return this.#change("setRole", key, { userId, role });
  }

  /** Renames a group. A RangeError says what is wrong with the title. */
  async setTitle(key, title) {
    checkTitle(title);
    return this.#change("setTitle", key, { title });
  }

  async dissolve(key) {
    return this.#change("dissolve", key);
  }

  /** Takes a message back, given its row. */
  async recall(key, { seq, messageId }) {
    return this.#change("recall", key, { seq, messageId });
  }

  /** Gives an own message another text, given its row. A RangeError says what is wrong with the text. */
  async edit(key, { seq, messageId }, text) {
    checkText(text);
    key = this.currentKey(key);
    const ours = this.#entriesOf(key).filter(({ action, state, fields }) => action === "edit" && state !== "failed" && fields.seq === seq);
    const version = (this.#ledgers.get(key)?.get(seq)?.version ?? 1) + ours.length; // as it will be by then
    return this.#ask("edit", this.#addressOf(key), { seq, messageId, version }, text);
  }

  /** Forgets what was refused, and with a group that could not be made what was meant for it. */
  discard(clientMsgId) {
    if (this.#outbox.get(clientMsgId)?.state !== "failed") return;
    const outboxDelete = [clientMsgId, ...this.#waitingFor(clientMsgId).map((entry) => entry.clientMsgId)];
    for (const id of outboxDelete) this.#outbox.delete(id);
    this.#commit({ outboxDelete });
    this.#changed();
  }

  /** Says which conversation is on screen, or null: more is kept up to date of that one. */
  open(key) {
    this.#openKey = key;
    this.#attend(this.#session);
  }

  /** Notes that the user has seen everything shown in a conversation. */
  markRead(key) {
    const ledger = this.#ledgers.get(this.currentKey(key));
    if (ledger) this.#raise(ledger, { readSeq: ledger.maxContiguousSeq });
  }

  /** Hides everything shown in a conversation, for this user on all devices. */
  clear(key) {
    const ledger = this.#ledgers.get(this.currentKey(key));
    if (ledger) this.#raise(ledger, { clearedSeq: ledger.maxContiguousSeq });
  }

  /** Loads a page of what is before the first entry held. Rejects with a RequestError. */
  async loadEarlier(key) {
    const ledger = this.#ledgers.get(this.currentKey(key));
    if (!ledger || !this.#hasEarlier(ledger)) return;
    const { conversationId } = ledger;
    const beforeSeq = ledger.baseSeq + 1;
    const page = await this.#connection.request("history", { conversationId, beforeSeq, limit: this.#limits.pull });
    if (this.#ledgers.get(conversationId) !== ledger) return;
    const messages = ledger.earlier(page, beforeSeq);
    this.#commit({ messages, conversations: [this.#record(ledger)] });
    this.#changed();
  }

  /** Who has received and who has read a message, {delivered, read} of userIds. Rejects with a RequestError. */
  async receipts(key, seq) {
    const conversationId = this.currentKey(key);
    const all = { delivered: [], read: [] };
    let cursor = "";
    do {
      const page = await this.#connection.request("receipts", { conversationId, seq, ...(cursor && { cursor }) });
      all.delivered.push(...page.delivered);
      all.read.push(...page.read);
      cursor = page.cursor ?? "";
    } while (cursor);
    return all;
  }

  // ---- the connection came, spoke, went ----

  // What belongs to one connection: when the next one comes, the work of the last is void.
  #arrived() {
    this.#leave();
    const session = { flush: null, catching: null, again: false };
    this.#session = session;
    this.#pulls.start();
    this.#watermarks.start();
    for (const conversationId of this.#ledgers.keys()) this.#watermarks.note(conversationId);
    const flush = () => {
      if (session !== this.#session || session.flush === null) return;
      this.#clock.clearTimeout(session.flush);
      session.flush = null;
      this.#outbox.resume();
    };
    session.flush = this.#clock.setTimeout(flush, this.#timing.flushWaitMs);
    this.#catchUp(session).then(flush);
  }

  #leave() {
    this.#outbox.pause();
    this.#pulls.stop();
    this.#watermarks.stop();
    this.#clock.clearTimeout(this.#session?.flush);
    this.#session = null;
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
    const ledger = this.#ledger(conversationId);
    this.#take(ledger, messages, () => ledger.push(messages, committedMaxSeq));
    this.#pulls.mind(ledger, this.#timing.gapWaitMs);
    const { kind, title, peer } = this.#facts.get(conversationId);
    if (kind === null && title === null && peer === null) this.#catchUp(this.#session); // what is it?
  }

  #receipt({ conversationId, userId, ...positions }) {
    const { deliveredSeq = 0, readSeq = 0 } = positions;
    if (userId === this.userId) {
      this.#know(conversationId, { deliveredSeq, readSeq });
      return;
    }
    const ledger = this.#ledgers.get(conversationId);
    if (!ledger) return;
    receive(this.#facts.get(conversationId), userId, { deliveredSeq, readSeq });
    this.#keep(ledger);
  }

  // ---- catching up ----

  // Asks what changed and pulls it, again if asked for meanwhile. The cursor moves last: were it stored
  // before the entries, a crash in between would hide them from every later `changes`.
  #catchUp(session) {
    if (!session || session !== this.#session) return Promise.resolve();
    session.again = true;
    session.catching ??= this.#catchUpAll(session).finally(() => (session.catching = null));
    return session.catching;
  }

  async #catchUpAll(session) {
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
    this.#attend(session);
  }

  async #round(session) {
    const asked = this.#syncCursor ?? 0;
    const held = new Map([...this.#ledgers.values()].map((ledger) => [ledger.conversationId, ledger.maxContiguousSeq]));
    const changes = await this.#changes(asked);
    if (session !== this.#session) return;
    if (changes.syncCursor < asked || this.#contradicts(changes, held)) {
      this.#startOver(session);
      return;
    }
    const { conversations, heads = [], syncCursor } = changes;
    for (const line of conversations) this.#describe(line).see(line.lastSeq);
    for (const { conversationId, committedMaxSeq } of heads) this.#ledger(conversationId).see(committedMaxSeq);
    await this.#pulls.all([...this.#ledgers.values()].filter((ledger) => ledger.hasGap));
    if (session !== this.#session) return;
    await this.#commit({ syncCursor });
    this.#syncCursor = syncCursor;
  }

  async #changes(syncCursor) {
    const changes = await this.#connection.request("changes", { syncCursor });
    const conversations = [...changes.conversations];
    for (let { cursor } = changes; cursor; ) {
      const page = await this.#connection.request("conversations", { cursor });
      conversations.push(...page.conversations);
      cursor = page.cursor;
    }
    return { ...changes, conversations };
  }

  // Whether the server knows less of a conversation than we held when we asked, or something else.
  #contradicts({ conversations, full }, held) {
    const listed = new Set(conversations.map(({ conversationId }) => conversationId));
    const missing = full && [...held].some(([conversationId, seq]) => seq > 0 && !listed.has(conversationId));
    return (
      missing ||
      conversations.some(({ conversationId, lastSeq, lastMessage }) => {
        const same = lastMessage && this.#ledgers.get(conversationId)?.get(lastMessage.seq);
        return lastSeq < held.get(conversationId) || (same && same.serverTime !== lastMessage.serverTime);
      })
    );
  }

  // The server was restored, or begun anew: what is held here is of another world. What the user wrote
  // and is not answered yet stays.
  #startOver(session) {
    this.#log("the server's conversations are not those held here any more: starting over");
    for (const entry of this.#outbox.all()) {
      const peer = this.#facts.get(entry.address.conversationId)?.peer;
      if (entry.state === "sent") this.#outbox.delete(entry.clientMsgId);
      else if (entry.action === "send" && peer) entry.address = { to: peer }; // it may have to be made anew
    }
    for (const known of [this.#ledgers, this.#facts, this.#peers]) known.clear();
    this.#syncCursor = null;
    this.#pulls.start();
    this.#watermarks.start();
    this.#commit({ forget: true, outboxPut: this.#outbox.all().map(recordOf) });
    this.#changed();
    session.again = true;
  }

  // Nobody waits for ten thousand entries to read the last ten.
  #startLate(ledger) {
    const { clearedSeq } = this.#facts.get(ledger.conversationId);
    if (ledger.maxContiguousSeq > 0 || ledger.maxSeenSeq - clearedSeq <= this.#limits.late) return;
    ledger.startAfter(Math.max(ledger.maxSeenSeq - this.#limits.end, clearedSeq));
    this.#rosters.invalidate(ledger.conversationId); // an event that is passed over may have changed it
  }

  #takePage(ledger, page) {
    if (page.firstSeq !== undefined) this.#rosters.invalidate(ledger.conversationId); // by an entry that is hidden from us
    this.#take(ledger, page.messages, () => ledger.page(page));
  }

  // Lets a ledger take something in, stores and shows the outcome. `arrived` may hold more than became
  // showable: an own message above a gap is committed all the same and need not be sent again.
  #take(ledger, arrived, takeIn) {
    const { conversationId, maxContiguousSeq: before } = ledger;
    const changed = takeIn();
    this.#learn(conversationId, changed);
    if (changed.length > 0 || ledger.maxContiguousSeq > before) this.#commit({ messages: changed, conversations: [this.#record(ledger)] });
    for (const { senderId, clientMsgId, seq, serverTime } of arrived) {
      const entry = senderId === this.userId && this.#outbox.get(clientMsgId);
      if (entry) this.#sent(entry, { conversationId, seq, serverTime });
    }
    for (const entry of this.#outbox.all()) {
      if (entry.state === "sent" && entry.conversationId === conversationId) this.#forgetShown(entry, ledger);
    }
    this.#watermarks.note(conversationId);
    this.#changed();
    this.#outbox.pump();
  }

  // Takes in what entries tell of the conversation itself.
  #learn(conversationId, entries) {
    const facts = this.#facts.get(conversationId);
    for (const entry of entries) {
      const { senderId } = entry;
      if (isSingle(conversationId) && senderId && senderId !== this.userId) this.#setPeer(conversationId, senderId);
      const { roster, joined } = apply(facts, entry, this.userId);
      if (roster) this.#rosters.invalidate(conversationId);
      if (joined) this.#catchUp(this.#session);
      if (roster && this.#isOpen(conversationId)) this.#attend(this.#session);
    }
  }

  // From here on the ledger's own row stands for the entry.
  #forgetShown(entry, ledger) {
    if (entry.seq <= ledger.maxContiguousSeq) this.#outbox.delete(entry.clientMsgId);
  }

  // ---- the conversation on screen ----

  // Gets what only people who look at a conversation need: who is in it, and how far the others are. What
  // fails is asked for again with the next catch-up.
  async #attend(session) {
    if (!session || session !== this.#session || this.#openKey === null) return;
    const conversationId = this.currentKey(this.#openKey);
    const facts = this.#facts.get(conversationId);
    if (!facts || facts.leftSeq > 0 || isSystem(conversationId)) return;
    try {
      if (isGroup(conversationId)) await this.#rosters.refresh(conversationId);
      await this.#lookUpReceipts(conversationId, facts);
    } catch (error) {
      if (!error.retryable) this.#log(`cannot look up ${conversationId}: ${error.message}`);
    }
  }

  // Receipts are pushed once. What was pushed while we were away is looked up for the last own message.
  async #lookUpReceipts(conversationId, facts) {
    if (facts.memberCount > RECEIPTS_MAX_MEMBERS || facts.peer === this.userId) return;
    const last = this.messages(conversationId).findLast(({ mine, seq, kind, recalled }) => mine && seq !== null && kind !== "event" && !recalled);
    if (!last || last.receipt === "read") return;
    const { delivered, read } = await this.receipts(conversationId, last.seq);
    if (this.#facts.get(conversationId) !== facts) return;
    for (const userId of delivered) receive(facts, userId, { deliveredSeq: last.seq });
    for (const userId of read) receive(facts, userId, { readSeq: last.seq });
    this.#keep(this.#ledgers.get(conversationId));
  }

  #isOpen(conversationId) {
    return this.#openKey !== null && this.currentKey(this.#openKey) === conversationId;
  }

  // ---- the outbox ----

  async #change(action, key, fields) {
    return this.#ask(action, this.#addressOf(this.currentKey(key)), fields);
  }

  async #ask(action, address, fields, text) {
    const { entry, stored } = this.#outbox.add({ action, address, fields, text });
    this.#changed();
    await stored;
    return entry.clientMsgId;
  }

  #addressOf(key) {
    if (key.startsWith(TO_KEY)) return { to: key.slice(TO_KEY.length) };
    if (key.startsWith(NEW_KEY)) return { group: key.slice(NEW_KEY.length) };
    return { conversationId: key };
  }

  #keyOf({ clientMsgId, conversationId, action, address }) {
    if (conversationId ?? address.conversationId) return conversationId ?? address.conversationId;
    if (address.to !== undefined) return this.keyFor(address.to);
    return this.currentKey(NEW_KEY + (action === "createGroup" ? clientMsgId : address.group));
  }

  #entriesOf(key) {
    return this.#outbox.all().filter((entry) => this.#keyOf(entry) === key);
  }

  #answered(entry, result) {
    if (entry.action === "createGroup") {
      this.#describe(result);
      this.#sent(entry, { conversationId: result.conversationId, seq: 1 }); // a group begins with its making
    } else this.#sent(entry, result);
  }

  #sent(entry, { conversationId, seq, serverTime }) {
    if (entry.address.to !== undefined) this.#setPeer(conversationId, entry.address.to);
    const ledger = this.#ledger(conversationId);
    ledger.see(seq);
    if (entry.state === "sent") return;
    Object.assign(entry, { state: "sent", conversationId, seq, serverTime });
    const waiting = entry.action === "createGroup" ? this.#nameGroup(entry.clientMsgId, conversationId) : [];
    this.#forgetShown(entry, ledger);
    this.#commit({ outboxDelete: [entry.clientMsgId], outboxPut: waiting.map(recordOf), conversations: [this.#record(ledger)] });
    this.#pulls.mind(ledger, this.#timing.ownWaitMs);
    this.#changed();
  }

  // Gives what was meant for a group that was still to be made its address.
  #nameGroup(clientMsgId, conversationId) {
    this.#created.set(clientMsgId, conversationId);
    if (this.#openKey === NEW_KEY + clientMsgId) this.#attend(this.#session);
    const waiting = this.#waitingFor(clientMsgId);
    for (const entry of waiting) entry.address = { conversationId };
    return waiting;
  }

  // What is meant for a group that is still to be made.
  #waitingFor(clientMsgId) {
    return this.#outbox.all().filter(({ address }) => address.group === clientMsgId);
  }

  #refused(entry, error) {
    const waiting = this.#waitingFor(entry.clientMsgId);
    this.#fail(entry, error);
    for (const other of waiting) this.#fail(other, { code: "NOT_FOUND", message: "the group could not be made" });
    this.#commit({ outboxPut: [entry, ...waiting].map(recordOf) });
    this.#changed();
  }

  #fail(entry, { code, message }) {
    Object.assign(entry, { state: "failed", error: `${code}: ${message}` });
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

  #describe(line) {
    const ledger = this.#ledger(line.conversationId);
    const facts = this.#facts.get(line.conversationId);
    describe(facts, line);
    this.#notePeer(line.conversationId);
    if (facts.leftSeq > 0) this.#rosters.forget(line.conversationId);
    this.#keep(ledger);
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

  #raise(ledger, positions) {
    if (!raise(this.#facts.get(ledger.conversationId), positions)) return;
    this.#keep(ledger);
    this.#watermarks.note(ledger.conversationId);
  }

  #know(conversationId, positions) {
    const ledger = this.#ledgers.get(conversationId);
    if (!ledger) return;
    know(this.#facts.get(conversationId), positions);
    this.#keep(ledger);
  }

  // How far we are beyond what the server knows. That only our own entries have arrived tells nobody
  // anything.
  #untold(conversationId) {
    const ledger = this.#ledgers.get(conversationId);
    if (!ledger) return {};
    const { told, readSeq, clearedSeq } = this.#facts.get(conversationId);
    const fromOthers = ledger.messages.findLast(({ seq, senderId }) => seq <= told.deliveredSeq || senderId !== this.userId);
    return {
      ...(fromOthers?.seq > told.deliveredSeq && { deliveredSeq: ledger.maxContiguousSeq }),
      ...(readSeq > told.readSeq && { readSeq }),
      ...(clearedSeq > told.clearedSeq && { clearedSeq }),
    };
  }

  #hasEarlier(ledger) {
    return ledger.baseSeq > this.#facts.get(ledger.conversationId).clearedSeq;
  }

  #keep(ledger) {
    this.#commit({ conversations: [this.#record(ledger)] });
    this.#changed();
  }

  #record({ conversationId, baseSeq, maxContiguousSeq }) {
    return structuredClone({ conversationId, baseSeq, maxContiguousSeq, ...this.#facts.get(conversationId) });
  }

  // ---- rows for people ----

  #view(key) {
    return {
      ledger: this.#ledgers.get(key) ?? null,
      facts: this.#facts.get(key) ?? newFacts(),
      entries: this.#entriesOf(key),
      userId: this.userId,
      roster: this.#rosters.of(key),
    };
  }

  #summary(key) {
    const view = this.#view(key);
    const { ledger, facts } = view;
    const last = rowsOf(view, 1)[0] ?? null;
    const making = view.entries.find(({ action }) => action === "createGroup");
    const peer = key.startsWith(TO_KEY) ? key.slice(TO_KEY.length) : facts.peer;
    const kind = facts.kind ?? (peer !== null ? "single" : key.startsWith(NEW_KEY) ? "group" : key.split(":", 1)[0]);
    return {
      key,
      kind,
      peer,
      title: (kind === "single" ? this.#peerTitle(peer) : (facts.title ?? making?.fields.title)) || key,
      memberCount: facts.memberCount,
      closed: closedFor(key, kind, view, making),
      role: kind === "group" ? this.#roleIn(view) : null,
      earlier: ledger !== null && this.#hasEarlier(ledger),
      unread: ledger === null ? 0 : unreadIn(facts, ledger, this.userId),
      last,
      time: last?.time ?? facts.updatedAt,
    };
  }

  #roleIn({ facts, roster }) {
    const role = roster?.find(({ userId }) => userId === this.userId)?.role;
    return role ?? (facts.owner === this.userId ? "owner" : "member");
  }

  #peerTitle(peer) {
    return peer === this.userId ? `${peer} (notes to self)` : peer;
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

function checkText(text) {
  if (text.trim() === "") throw new RangeError("the message is empty");
  if (countRunes(text) > MAX_TEXT_RUNES) throw new RangeError(`the message is over ${MAX_TEXT_RUNES} characters`);
}

function checkTitle(title) {
  if (title.trim() === "") throw new RangeError("the title is empty");
  if (countRunes(title) > MAX_TITLE_RUNES) throw new RangeError(`the title is over ${MAX_TITLE_RUNES} characters`);
}

function closedFor(key, kind, { ledger, facts }, making) {
  if (kind === "system") return "system";
  if (facts.leftSeq > 0) return "left";
  if (facts.state === "dissolved") return "dissolved";
  if (making?.state === "failed") return "failed";
  return ledger === null && !making && !key.startsWith(TO_KEY) ? "unknown" : null;
}

function isSingle(conversationId) {
  return conversationId.startsWith("single:");
}

function isGroup(conversationId) {
  return conversationId.startsWith("group:");
}

function isSystem(conversationId) {
  return conversationId.startsWith("system:");
}

function groupByConversation(messages) {
  const groups = new Map();
  for (const message of messages) {
    if (!groups.has(message.conversationId)) groups.set(message.conversationId, []);
    groups.get(message.conversationId).push(message);
  }
  return groups;
}
