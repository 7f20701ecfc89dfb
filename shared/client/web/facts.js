// What a device knows of a conversation besides its entries, as a plain record that can be stored. It comes from two
// sources: the lines of `changes` and `conversations`, which hold all of it as of a seq, and the events in the ledger,
// each of which changes a part. The newer one wins.

/**
 * @import { Ledger } from "./ledger.js"
 * @import { Facts, Message } from "./types.js"
 */

/** @typedef {{readSeq?: number, deliveredSeq?: number, clearedSeq?: number}} OwnPositions */

/** The sender of what the product writes; no user has this name. */
export const SYSTEM = "system";

/**
 * The facts of a conversation of which nothing is known yet.
 * @returns {Facts}
 */
export function newFacts() {
  return {
    asOf: 0, // the seq that kind to leftSeq stand for
    kind: null,
    title: null,
    peer: null,
    state: "active",
    owner: null,
    memberCount: 0,
    leftSeq: 0, // the last seq a former member may read; 0 for a member
    updatedAt: 0,
    readSeq: 0,
    deliveredSeq: 0,
    clearedSeq: 0,
    recheckSeq: 0, // what is held up to it is to be read again: we were away since, and not told what was recalled
    unread: { count: 0, asOf: 0 }, // what the server counted when its last entry had the seq asOf
    told: { readSeq: 0, deliveredSeq: 0, clearedSeq: 0 }, // what the server is known to know of these three
    receipts: new Map(), // userId → {deliveredSeq, readSeq}; no object: a user may be named constructor
  };
}

/**
 * Takes facts from a store or another tab. An earlier version of this code held receipts as an object, and may have
 * taken the product for the peer of a single conversation.
 * @param {Partial<Facts>} stored @returns {Facts}
 */
export function restored(stored) {
  const facts = { ...newFacts(), ...stored };
  const { receipts, peer } = facts;
  return { ...facts, receipts: receipts instanceof Map ? receipts : new Map(Object.entries(receipts)), peer: peer === SYSTEM ? null : peer };
}

/**
 * Takes a line of the user's list of conversations.
 * @param {Facts} facts @param {any} line
 */
export function describe(facts, line) {
  if (line.lastSeq >= facts.asOf) {
    const { lastSeq: asOf, kind, title = null, state = "active", owner = null, memberCount = 0, leftSeq = 0 } = line;
    Object.assign(facts, { asOf, kind, title, state, owner, memberCount, leftSeq });
  }
  facts.peer = line.peer ?? facts.peer;
  facts.updatedAt = Math.max(facts.updatedAt, line.updatedAt ?? 0);
  const { lastSeq, readSeq = 0, unread = lastSeq, deliveredSeq = 0, clearedSeq = 0 } = line;
  if (lastSeq >= facts.unread.asOf) facts.unread = { count: unread, asOf: lastSeq };
  know(facts, { readSeq, deliveredSeq, clearedSeq });
  facts.told = { readSeq, deliveredSeq, clearedSeq }; // it is less than was told if that got lost
}

/**
 * Takes an entry that became showable. Returns whether it changed the roster, and whether it made us a member: then
 * there is more to know than the entry says.
 * @param {Facts} facts @param {Pick<Message, "seq" | "senderId" | "serverTime" | "event">} entry @param {string} userId
 */
export function apply(facts, { seq, senderId, serverTime, event }, userId) {
  facts.updatedAt = Math.max(facts.updatedAt, serverTime ?? 0);
  const news = { roster: event?.kind === "members", joined: false };
  if (!event || seq <= facts.asOf) return news;
  facts.asOf = seq;
  const { kind, added = [], removed = [], owner, title } = event;
  facts.owner = owner ?? facts.owner;
  facts.title = title ?? facts.title;
  facts.memberCount += added.length - removed.length;
  if (kind === "dissolve") facts.state = "dissolved";
  if (removed.includes(userId)) facts.leftSeq = seq;
  if (added.includes(userId)) {
    facts.leftSeq = 0;
    facts.unread = { count: 0, asOf: seq - 1 }; // what was there before is not unread
    news.joined = senderId !== userId;
  }
  return news;
}

/**
 * Raises some of the positions readSeq, deliveredSeq and clearedSeq; none ever falls. Returns whether one rose.
 * @param {{readSeq: number, deliveredSeq: number, clearedSeq: number}} facts @param {OwnPositions} positions
 */
export function raise(facts, positions) {
  let rose = false;
  for (const [key, seq] of Object.entries(positions)) {
    const name = /** @type {keyof OwnPositions} */ (key);
    if (!(seq > facts[name])) continue;
    facts[name] = seq;
    rose = true;
  }
  return rose;
}

/**
 * As raise, for positions that the server knows.
 * @param {Facts} facts @param {OwnPositions} positions
 */
export function know(facts, positions) {
  const rose = raise(facts, positions);
  raise(facts.told, positions);
  return rose;
}

/**
 * Takes another user's positions.
 * @param {Facts} facts @param {string} userId @param {{deliveredSeq?: number, readSeq?: number}} positions
 */
export function receive(facts, userId, { deliveredSeq = 0, readSeq = 0 }) {
  const old = facts.receipts.get(userId) ?? { deliveredSeq: 0, readSeq: 0 };
  facts.receipts.set(userId, { deliveredSeq: Math.max(old.deliveredSeq, deliveredSeq, readSeq), readSeq: Math.max(old.readSeq, readSeq) });
}

/**
 * Whether we have left the conversation and cleared all of it: then no list shows it until we are added again.
 * @param {Facts} facts
 */
export function isHidden({ leftSeq, clearedSeq }) {
  return leftSeq > 0 && clearedSeq >= leftSeq;
}

/**
 * How many seqs are unread: those above our positions that are not known to be ours. Up to the seq at which the server
 * counted, they are no more than it counted: it may know more about entries that are not held, or gone.
 * @param {Facts} facts @param {Ledger} ledger @param {string} userId
 * @param {number[]} [sent] seqs of our own that the ledger may not hold yet
 */
export function unreadIn({ readSeq, clearedSeq, leftSeq, unread }, ledger, userId, sent = []) {
  const known = Math.max(ledger.maxSeenSeq, unread.asOf);
  const last = leftSeq > 0 ? Math.min(known, leftSeq) : known;
  /** @param {number} after */
  const others = (after) => Math.max(0, last - after) - ledger.countBy(userId, after, last, sent);
  const read = Math.max(readSeq, clearedSeq);
  return Math.min(others(read), unread.count + others(Math.max(read, unread.asOf)));
}
