// Turns what a device holds of a conversation into the rows that people see. Pure.

import { isRevision } from "./ledger.js";
import { rightsOver } from "./rights.js";

/**
 * @import { Ledger } from "./ledger.js"
 * @import { Facts, LedgerEvent, Lost, Member, Message, OutboxEntry, Quote, Revision, Row } from "./types.js"
 */

/**
 * What rows are made of. outbox is what waits for this conversation; roster is null while it is unknown.
 * @typedef {import("./rights.js").Standing & {ledger: Ledger | null, facts: Facts, outbox: OutboxEntry[], lost: readonly Lost[], roster: Member[] | null}} View
 */

/** Up to this many members, each hears the positions of the others. */
export const RECEIPTS_MAX_MEMBERS = 20;

/** The error of an own message that the server has lost. */
export const LOST = Object.freeze({ code: "LOST", message: "the server does not have this message any more", retryable: true });

const GONE = Object.freeze({ ...LOST, message: "the server does not have this conversation any more", retryable: false });

const REVISIONS = new Set(["recall", "edit"]);

/**
 * Whether an outbox entry changes a message, and so has no row of its own.
 * @param {OutboxEntry} entry
 */
function revises({ action }) {
  return REVISIONS.has(action);
}

/**
 * The last `limit` rows in order, those without a seq at the end.
 * @param {View} view @param {number} [limit] @returns {Row[]}
 */
export function rowsOf(view, limit = Infinity) {
  const own = view.outbox.filter((entry) => !revises(entry)).map((entry) => ownRow(view, entry));
  const numbered = own.filter((row) => row.seq !== null);
  const rows = shown(view, limit).concat(numbered);
  if (numbered.length > 0) rows.sort((a, b) => Number(a.seq) - Number(b.seq));
  return among(rows, view.lost.map(({ message }) => lostRow(view, message))).concat(own.filter((row) => row.seq === null)).slice(-limit);
}

// Lost messages have no place in the order; each stands before the first younger message.
/**
 * @param {Row[]} rows
 * @param {Row[]} lost oldest first
 */
function among(rows, lost) {
  if (lost.length === 0) return rows;
  const left = [...lost];
  const all = rows.flatMap((row) => [...left.splice(0, countOlder(left, row.time)), row]);
  return all.concat(left);
}

/** @param {Row[]} rows @param {number} time */
function countOlder(rows, time) {
  const index = rows.findIndex((row) => row.time >= time);
  return index < 0 ? rows.length : index;
}

/** @param {View} view @param {Message} message @returns {Row} */
function lostRow(view, message) {
  const shown = row(view, message);
  const failed = shown.mine ? { state: /** @type {const} */ ("failed"), error: GONE } : {};
  return { ...shown, seq: null, ...failed, revision: null, canEdit: false, canRecall: false, lost: true, ...receiptsOf(view, null) };
}

/**
 * The row of the message with this seq, if it is held and shown.
 * @param {View} view @param {number} seq @returns {Row | null}
 */
export function rowAt(view, seq) {
  const message = view.ledger?.get(seq);
  return message && seq > view.facts.clearedSeq && !isRevision(message) ? row(view, message) : null;
}

/** @param {View} view @param {number} limit */
function shown(view, limit) {
  const messages = view.ledger?.messages ?? [];
  const rows = [];
  for (let i = messages.length - 1; i >= 0 && messages[i].seq > view.facts.clearedSeq && rows.length < limit; i--) {
    if (!isRevision(messages[i])) rows.push(row(view, messages[i]));
  }
  return rows.reverse();
}

/** @param {View} view @param {Message} message @returns {Row} */
function row(view, message) {
  const { seq, messageId, clientMsgId, senderId, messageType, version, serverTime } = message;
  const mine = senderId === view.userId;
  const revision = revisionOf(view, seq);
  const recalled = message.status === "recalled";
  const rewritten = revision?.action === "edit" && revision.state !== "failed" && !recalled ? revision : null;
  return {
    seq,
    messageId,
    clientMsgId,
    senderId,
    mine,
    kind: messageType,
    text: (rewritten ?? message).text ?? "",
    data: (rewritten ?? message).data ?? null,
    event: message.event ?? null,
    quote: quoteOf(view, message.replyTo),
    recalled,
    edited: !recalled && (version > 1 || rewritten !== null),
    ...(isBeingRecalled(revision) ? { canEdit: false, canRecall: false } : rightsOver(view, message)),
    revision,
    time: serverTime,
    state: mine ? "sent" : null,
    error: null,
    lost: false,
    ...receiptsOf(view, mine ? message : null),
  };
}

/** @param {View} view @param {OutboxEntry} entry @returns {Row} */
function ownRow(view, entry) {
  const { userId } = view;
  return {
    seq: entry.state === "sent" ? (entry.seq ?? null) : null,
    messageId: entry.messageId ?? null,
    clientMsgId: entry.clientMsgId,
    senderId: userId,
    mine: true,
    kind: entry.action === "send" ? entry.fields.messageType : "event",
    text: entry.text ?? "",
    data: entry.fields.data ?? null,
    event: eventOf(entry, userId),
    quote: quoteOf(view, entry.fields.replyTo),
    recalled: false,
    edited: false,
    canEdit: false,
    canRecall: false,
    revision: null,
    time: entry.serverTime ?? entry.clientTime,
    state: entry.state,
    error: entry.error,
    lost: entry.state === "failed" && entry.error?.code === LOST.code,
    ...receiptsOf(view, null),
  };
}

// The event that a change of a group becomes once it is committed.
/** @param {OutboxEntry} entry @param {string} userId @returns {LedgerEvent | null} */
function eventOf({ action, fields }, userId) {
  switch (action) {
    case "createGroup":
      return { kind: "members", added: [userId, ...fields.members], owner: userId, title: fields.title };
    case "addMembers":
      return { kind: "members", added: fields.members };
    case "removeMembers":
      return { kind: "members", removed: fields.members };
    case "leave":
      return { kind: "members", removed: [userId] };
    case "setRole":
      return { kind: "members", member: fields.userId, role: fields.role };
    case "setTitle":
      return { kind: "title", title: fields.title };
    case "dissolve":
      return { kind: "dissolve" };
    default:
      return null;
  }
}

// The last change that the user asked for and the message does not show yet.
/** @param {View} view @param {number} seq @returns {Revision | null} */
function revisionOf({ outbox }, seq) {
  const entry = outbox.findLast((candidate) => revises(candidate) && candidate.fields.seq === seq);
  if (!entry) return null;
  const { clientMsgId, action, state, text, fields, error } = entry;
  return { clientMsgId, action: /** @type {Revision["action"]} */ (action), state, text, data: fields.data ?? null, error };
}

/** @param {Revision | null} revision */
function isBeingRecalled(revision) {
  return revision?.action === "recall" && revision.state !== "failed";
}

/** @param {View} view @param {{seq: number, messageId: string} | null | undefined} replyTo @returns {Quote | null} */
function quoteOf({ ledger, facts }, replyTo) {
  if (!replyTo) return null;
  const target = replyTo.seq > facts.clearedSeq ? ledger?.get(replyTo.seq) : undefined;
  if (!target || target.messageId !== replyTo.messageId) return { seq: replyTo.seq, senderId: null, kind: null, text: "", recalled: false };
  return { seq: target.seq, senderId: target.senderId ?? null, kind: target.messageType, text: target.text ?? "", recalled: target.status === "recalled" };
}

/**
 * How far the others are with an own message: receipt is "read" or "delivered" once that holds for all of them, readBy
 * are those who have read it, and audience is how many they are. Members who joined later do not count.
 * @param {View} view @param {Message | null} message @returns {Pick<Row, "receipt" | "readBy" | "audience">}
 */
function receiptsOf({ facts, userId, roster }, message) {
  const none = { receipt: null, readBy: [], audience: 0 };
  if (!message || message.messageType === "event" || message.status === "recalled") return none;
  if (Math.max(facts.memberCount, roster?.length ?? 0) > RECEIPTS_MAX_MEMBERS) return none;
  const known = roster?.filter(({ joinedAt }) => joinedAt <= message.serverTime).map((member) => member.userId);
  const others = (facts.peer !== null ? [facts.peer] : (known ?? [...facts.receipts.keys()])).filter((id) => id !== userId);
  const audience = facts.peer === null && !known ? Math.max(facts.memberCount - 1, others.length) : others.length;
  if (audience === 0) return none;
  /** @param {"readSeq" | "deliveredSeq"} name */
  const reached = (name) => others.filter((id) => (facts.receipts.get(id)?.[name] ?? 0) >= message.seq);
  const readBy = reached("readSeq");
  if (readBy.length === audience) return { receipt: "read", readBy, audience };
  return { receipt: reached("deliveredSeq").length === audience ? "delivered" : null, readBy, audience };
}
