// What the model holds as people read it: the list of conversations, one of them, and its rows.

import { isHidden, newFacts, unreadIn } from "./facts.js";
import { NEW_KEY, TO_KEY, kindOf } from "./model.js";
import { may } from "./rights.js";
import { rowAt, rowsOf } from "./rows.js";

/**
 * @import { Model } from "./model.js"
 * @import { Conversation, ConversationKey, Facts, Member, OutboxEntry, Role, Row } from "./types.js"
 */

/**
 * The current keys of what is on the user's list.
 * @param {Model} model
 */
export function listed(model) {
  const keys = new Set([...model.ledgers.keys()].filter((conversationId) => !isHidden(model.factsOf(conversationId))));
  for (const entry of model.outbox.values()) keys.add(model.keyOf(entry));
  for (const each of model.lost) {
    if (model.isLost(each)) keys.add(model.keyOfLost(each));
  }
  return [...keys];
}

/**
 * The last `limit` rows of a conversation.
 * @param {Model} model @param {ConversationKey} key @param {number} limit
 * @param {number} now ms since 1970
 * @returns {Row[]}
 */
export function rowsIn(model, key, limit, now) {
  return rowsOf(viewOf(model, key, now), limit);
}

/**
 * The row of one message, if it is held and shown.
 * @param {Model} model @param {ConversationKey} key @param {number} seq
 * @param {number} now ms since 1970
 */
export function rowIn(model, key, seq, now) {
  return rowAt(viewOf(model, key, now), seq);
}

/**
 * Whether we may do something in a group, as far as is known; see may in rights.js.
 * @param {Model} model @param {ConversationKey} key @param {string} action @param {string} [target]
 */
export function mayDo(model, key, action, target) {
  const { closed, role } = viewOf(model, key, 0);
  const open = closed === null || (closed === "dissolved" && action === "leave");
  return open && may(role, action, target);
}

/**
 * @param {Model} model @param {ConversationKey} key
 * @param {number} now ms since 1970
 * @returns {Conversation}
 */
export function summaryOf(model, key, now) {
  const view = viewOf(model, key, now);
  const { ledger, facts, peer, kind, closed, role, userId } = view;
  const last = rowsOf(view, 1)[0] ?? null;
  const ownTitle = peer === userId ? `${peer} (notes to self)` : peer;
  return {
    key: view.key,
    kind,
    peer,
    title: (kind === "single" && peer !== null ? ownTitle : view.title) || view.key,
    memberCount: facts.memberCount,
    closed,
    role,
    earlier: ledger !== null && model.hasEarlier(ledger),
    readSeq: Math.max(facts.readSeq, facts.clearedSeq),
    unread: ledger === null ? 0 : unreadIn(facts, ledger, userId, view.outbox.map(({ seq }) => seq ?? 0)),
    last,
    time: last?.time ?? facts.updatedAt,
  };
}

/**
 * All that rows and summaries are made of.
 * @param {Model} model @param {ConversationKey} anyKey
 * @param {number} now ms since 1970
 */
function viewOf(model, anyKey, now) {
  const { userId, status } = model;
  const key = model.currentKey(anyKey);
  const ledger = model.ledgers.get(key) ?? null;
  const facts = model.facts.get(key) ?? newFacts();
  const outbox = model.outboxOf(key);
  const lost = model.lostIn(key);
  const roster = model.members(key);
  const making = outbox.find(({ action }) => action === "createGroup");
  const title = facts.title ?? making?.fields.title ?? lost.at(-1)?.title;
  const peer = key.startsWith(TO_KEY) ? key.slice(TO_KEY.length) : facts.peer;
  const kind = facts.kind ?? (peer !== null ? "single" : key.startsWith(NEW_KEY) ? "group" : kindOf(key));
  const role = kind === "group" ? roleOf(userId, roster, facts) : null;
  /** @type {Map<string, Role>} */
  const roles = new Map(role === null || role === "member" ? [] : roster?.map((member) => [member.userId, member.role]));
  if (facts.owner !== null) roles.set(facts.owner, "owner");
  const mayBeThere = key.startsWith(NEW_KEY) ? making !== undefined : status.inDoubt || key.startsWith(TO_KEY);
  const isUnknown = ledger === null && !mayBeThere;
  const closed = closedFor(kind, facts, making, isUnknown);
  return { key, ledger, facts, outbox, lost, roster, making, peer, kind, closed, role, roles, title, userId, windows: status.windows, now };
}

/** @param {string} userId @param {readonly Member[] | null} roster @param {Facts} facts */
function roleOf(userId, roster, { owner }) {
  const role = roster?.find((member) => member.userId === userId)?.role;
  return role ?? (owner === userId ? "owner" : "member");
}

/**
 * @param {string} kind @param {Facts} facts @param {OutboxEntry | undefined} making @param {boolean} isUnknown
 * @returns {Conversation["closed"]}
 */
function closedFor(kind, facts, making, isUnknown) {
  if (kind === "system") return "system";
  if (facts.leftSeq > 0) return "left";
  if (facts.state === "dissolved") return "dissolved";
  if (making?.state === "failed") return "failed";
  return isUnknown ? "unknown" : null;
}
