// What a device knows, as one tab holds it: the ledgers, what else is known of conversations, and the outbox. In the
// tab that leads, the engine changes it; in the others, what the leader tells. No I/O, no time.

import { SYSTEM, newFacts, restored } from "./facts.js";
import { Ledger } from "./ledger.js";
import { recordOf } from "./outbox.js";

/**
 * @import { Conversation, ConversationKey, ConversationRecord, Delta, Facts, Lost, Member, Message, OutboxEntry, Picture, Saved, Status } from "./types.js"
 */

/** Begins the key of a single conversation that the server has not named yet. */
export const TO_KEY = "to:";
/** Begins the key of a group that the server has not named yet. */
export const NEW_KEY = "new:";

const IDLE = { busy: null, failures: 0, stored: true }; // an outbox entry that nothing is under way for

export class Model {
  /** @type {Map<string, Ledger>} */
  ledgers = new Map();
  /** @type {Map<string, Facts>} What else is known of a conversation, see facts.js. */
  facts = new Map();
  /** @type {Map<string, OutboxEntry>} The outbox, by clientMsgId, oldest first. */
  outbox = new Map();
  /** @type {Map<string, Member[]>} The members of the groups that were looked at. */
  rosters = new Map();
  /** @type {Map<string, string>} The conversationId by the clientMsgId of the createGroup. */
  created = new Map();
  /** @type {string[]} Outbox entries that load found committed in a ledger. */
  answered = [];
  /** @type {number | null} */
  syncCursor = null;
  /** @type {readonly Lost[]} What the server has lost, oldest first; another list once that changes. */
  lost = [];
  /** @type {readonly Lost[]} What it may have lost: what was held before all began anew. */
  doubtful = [];
  /** @type {Status} */
  status = { state: "connecting", detail: "", windows: {}, ahead: 0, inDoubt: true, storeError: null };

  /** Lost messages by where they may be shown. @type {{all: readonly Lost[], byPlace: Map<string, Lost[]>}} */
  #grouped = { all: [], byPlace: new Map() };
  /** @type {Map<string, string>} The conversationId of the single conversation with a user. */
  #peers = new Map();
  /** @type {Map<string, string>} The user by the conversationId of a single conversation that was forgotten. */
  #former = new Map();

  /** @param {string} userId */
  constructor(userId) {
    this.userId = userId;
  }

  /**
   * Takes what a store holds.
   * @param {Saved} saved
   */
  load({ syncCursor, conversations, messages, outbox, lost = [] }) {
    this.syncCursor = syncCursor;
    if (syncCursor === null) this.doubtful = lost; // it is not known yet which of it the server has
    else this.lost = lost;
    const byConversation = groupByConversation(messages);
    for (const { conversationId, baseSeq, maxContiguousSeq, ...facts } of conversations) {
      this.ledgers.set(conversationId, new Ledger(conversationId, { baseSeq, maxContiguousSeq, messages: byConversation.get(conversationId) }));
      this.facts.set(conversationId, restored(facts));
      this.notePeer(conversationId);
    }
    if (conversations.some(({ peer }) => peer === SYSTEM)) this.syncCursor = null; // the server tells who it is
    this.status = { ...this.status, inDoubt: this.syncCursor === null };
    for (const record of [...outbox].sort((a, b) => a.order - b.order)) {
      const entry = { ...record, error: refusalOf(record.error), ...IDLE };
      if (this.holds(entry)) this.answered.push(entry.clientMsgId);
      else this.outbox.set(entry.clientMsgId, entry);
    }
  }

  /**
   * What a store would have to hold, as of now.
   * @returns {Saved}
   */
  dump() {
    return {
      syncCursor: this.syncCursor,
      conversations: [...this.ledgers.values()].map((ledger) => this.record(ledger)),
      messages: [...this.ledgers.values()].flatMap(({ messages }) => messages),
      outbox: [...this.outbox.values()].filter(({ state }) => state !== "sent").map(recordOf),
      lost: [...this.lost, ...this.doubtful],
    };
  }

  /** Forgets all but the outbox and what is lost. */
  forget() {
    for (const [peer, conversationId] of this.#peers) this.#former.set(conversationId, peer);
    for (const known of [this.ledgers, this.facts, this.#peers]) known.clear();
    this.syncCursor = null;
  }

  /**
   * All of it, for another tab.
   * @returns {Picture}
   */
  picture() {
    return { saved: this.dump(), entries: [...this.outbox.values()].map(shownOf), rosters: [...this.rosters], created: [...this.created], status: this.status };
  }

  /**
   * Makes a model of what another tab told.
   * @param {string} userId @param {Picture} picture
   */
  static of(userId, { saved, entries, rosters, created, status }) {
    const model = new Model(userId);
    model.load({ ...saved, outbox: [] });
    model.doubtful = []; // the tab that leads tells what becomes of it
    model.apply({ messages: [], conversations: [], entriesPut: entries, entriesDelete: [], rosters, created, status });
    return model;
  }

  /**
   * Takes what changed in the tab that leads. Each part replaces what is held of it, so that nothing goes wrong if
   * something is told twice.
   * @param {Omit<Delta, "news">} delta
   */
  apply({ forget = false, messages, conversations, entriesPut, entriesDelete, rosters, created, status, lost = this.lost }) {
    if (forget) this.forget();
    this.lost = lost;
    const byConversation = groupByConversation(messages);
    for (const { conversationId, baseSeq, maxContiguousSeq, ...facts } of conversations) {
      this.ledger(conversationId).adopt({ baseSeq, maxContiguousSeq, messages: byConversation.get(conversationId) ?? [] });
      this.facts.set(conversationId, restored(facts));
      this.notePeer(conversationId);
    }
    for (const entry of entriesPut) {
      if (this.outbox.get(entry.clientMsgId)?.order !== entry.order) this.outbox.delete(entry.clientMsgId); // it comes last now
      this.outbox.set(entry.clientMsgId, { ...entry, ...IDLE });
    }
    for (const { senderId, clientMsgId } of messages) {
      if (senderId === this.userId && clientMsgId) this.outbox.delete(clientMsgId); // the message stands for it
    }
    for (const clientMsgId of entriesDelete) this.outbox.delete(clientMsgId);
    for (const [conversationId, members] of rosters) {
      if (members) this.rosters.set(conversationId, members);
      else this.rosters.delete(conversationId);
    }
    for (const [clientMsgId, conversationId] of created) this.created.set(clientMsgId, conversationId);
    this.status = status;
  }

  /**
   * Takes over what an earlier model of this tab knew and a store does not hold, so that it is still shown.
   * @param {Model} earlier
   */
  inherit(earlier) {
    for (const [conversationId, peer] of earlier.#former) this.#former.set(conversationId, peer);
    for (const [clientMsgId, conversationId] of earlier.created) this.created.set(clientMsgId, conversationId);
    for (const [conversationId, members] of earlier.rosters) this.rosters.set(conversationId, members);
    for (const entry of earlier.outbox.values()) {
      if (entry.state === "failed" || this.outbox.has(entry.clientMsgId) || this.holds(entry)) continue;
      if (entry.state === "sent") this.ledger(/** @type {string} */ (entry.conversationId)).see(entry.seq ?? 0);
      this.outbox.set(entry.clientMsgId, { ...entry, ...IDLE, stored: false });
    }
  }

  // ---- what can be read ----

  /** @param {string} userId @returns {ConversationKey} */
  keyFor(userId) {
    return this.#peers.get(userId) ?? TO_KEY + userId;
  }

  /** @param {ConversationKey} key @returns {ConversationKey} */
  currentKey(key) {
    if (key.startsWith(TO_KEY)) return this.keyFor(key.slice(TO_KEY.length));
    if (key.startsWith(NEW_KEY)) return this.created.get(key.slice(NEW_KEY.length)) ?? key;
    const peer = this.ledgers.has(key) ? undefined : this.#former.get(key);
    return peer === undefined ? key : this.keyFor(peer);
  }

  /**
   * The key of the conversation that an outbox entry is for.
   * @param {OutboxEntry} entry
   */
  keyOf({ clientMsgId, conversationId, action, address }) {
    const known = conversationId ?? address.conversationId;
    if (known) return known;
    if (address.to !== undefined) return this.keyFor(address.to);
    return this.currentKey(NEW_KEY + (action === "createGroup" ? clientMsgId : address.group));
  }

  /**
   * The outbox's entries for a conversation.
   * @param {ConversationKey} key a current one
   */
  outboxOf(key) {
    return [...this.outbox.values()].filter((entry) => this.keyOf(entry) === key);
  }

  /**
   * The key of the conversation that shows a lost message.
   * @param {Lost} lost
   */
  keyOfLost({ message: { conversationId }, peer }) {
    return this.ledgers.has(conversationId) || peer === null ? conversationId : this.keyFor(peer);
  }

  /**
   * Whether the server does not have a message, as far as is known; it is not known for what is before the held
   * entries.
   * @param {Lost} lost
   */
  isLost({ message: { conversationId, seq, messageId } }) {
    const ledger = this.ledgers.get(conversationId);
    if (!ledger) return true;
    return seq > ledger.baseSeq && seq > this.factsOf(conversationId).clearedSeq && ledger.get(seq)?.messageId !== messageId;
  }

  /**
   * What is shown as lost in a conversation, oldest first.
   * @param {ConversationKey} key a current one
   */
  lostIn(key) {
    if (this.#grouped.all !== this.lost) {
      this.#grouped = { all: this.lost, byPlace: new Map() };
      for (const each of this.lost) {
        for (const place of [each.message.conversationId, TO_KEY + each.peer]) {
          const there = this.#grouped.byPlace.get(place);
          if (there) there.push(each);
          else this.#grouped.byPlace.set(place, [each]);
        }
      }
    }
    const there = this.#grouped.byPlace.get(key) ?? [];
    return there.filter((each) => this.keyOfLost(each) === key && this.isLost(each));
  }

  /** @param {ConversationKey} key */
  members(key) {
    return this.rosters.get(this.currentKey(key)) ?? null;
  }

  // ---- what the engine changes ----

  /**
   * The ledger of a conversation, a new one if nothing is known of it.
   * @param {string} conversationId
   */
  ledger(conversationId) {
    let ledger = this.ledgers.get(conversationId);
    if (!ledger) {
      ledger = new Ledger(conversationId);
      this.ledgers.set(conversationId, ledger);
      this.facts.set(conversationId, newFacts());
    }
    return ledger;
  }

  /**
   * The facts of a conversation that has a ledger.
   * @param {string} conversationId
   */
  factsOf(conversationId) {
    return /** @type {Facts} */ (this.facts.get(conversationId));
  }

  /** @param {string} conversationId @param {string} userId */
  setPeer(conversationId, userId) {
    this.ledger(conversationId);
    this.factsOf(conversationId).peer = userId;
    this.notePeer(conversationId);
  }

  /** @param {string} conversationId */
  notePeer(conversationId) {
    const { peer } = this.factsOf(conversationId);
    if (peer) this.#peers.set(peer, conversationId);
  }

  /** @param {Ledger} ledger */
  hasEarlier(ledger) {
    return ledger.baseSeq > this.factsOf(ledger.conversationId).clearedSeq;
  }

  /**
   * The last seq that is to be read again, 0 if there is none.
   * @param {Ledger} ledger
   */
  unchecked({ conversationId, baseSeq }) {
    const { recheckSeq, clearedSeq } = this.factsOf(conversationId);
    return recheckSeq > Math.max(baseSeq, clearedSeq) ? recheckSeq : 0;
  }

  /**
   * Whether there is anything to pull.
   * @param {Ledger} ledger
   */
  isBehind(ledger) {
    return ledger.hasGap || this.unchecked(ledger) > 0;
  }

  /**
   * What is stored of a conversation besides its messages.
   * @param {Ledger} ledger @returns {ConversationRecord}
   */
  record({ conversationId, baseSeq, maxContiguousSeq }) {
    return structuredClone({ conversationId, baseSeq, maxContiguousSeq, ...this.factsOf(conversationId) });
  }

  /**
   * Whether what an outbox entry asks for is in the ledger already: the tab that led before may have ended between
   * storing the message and removing its entry from the outbox.
   * @param {OutboxEntry} entry
   */
  holds(entry) {
    const messages = this.ledgers.get(this.keyOf(entry))?.messages ?? [];
    return messages.some(({ clientMsgId, senderId }) => clientMsgId === entry.clientMsgId && senderId === this.userId);
  }
}

/**
 * An outbox entry as another tab shows it.
 * @param {OutboxEntry} entry
 */
export function shownOf(entry) {
  const { conversationId, seq, messageId, serverTime } = entry;
  return { ...recordOf(entry), conversationId, seq, messageId, serverTime };
}

// An earlier version of this code stored a text.
/** @param {import("./types.js").Refusal | string | null} stored @returns {import("./types.js").Refusal | null} */
function refusalOf(stored) {
  if (typeof stored !== "string") return stored;
  const [code, ...message] = stored.split(": ");
  return { code, message: message.join(": "), retryable: false };
}

/**
 * A text that differs for the states of an outbox entry that look different.
 * @param {OutboxEntry} entry
 */
export function lookOf({ state, error, seq, address }) {
  return JSON.stringify([state, error, seq, address]);
}

/**
 * The kind of a conversation, as its id tells.
 * @param {string} conversationId
 */
export function kindOf(conversationId) {
  return /** @type {Conversation["kind"]} */ (conversationId.split(":", 1)[0]);
}

/** @param {Message[]} messages @returns {Map<string, Message[]>} */
function groupByConversation(messages) {
  const groups = new Map();
  for (const message of messages) {
    if (!groups.has(message.conversationId)) groups.set(message.conversationId, []);
    groups.get(message.conversationId).push(message);
  }
  return groups;
}
