// Messages that only this device still has, because the server was restored to an earlier time or set up anew. All that
// was held is in doubt until it is known what the server has. The rest is lost, and shown as such until it is put
// aside.

import { LOST } from "./rows.js";

/**
 * @import { Model } from "./model.js"
 * @import { Lost, Message, OutboxEntry } from "./types.js"
 */

export class LostMessages {
  #model;
  #userId;
  #limits;

  /**
   * @param {object} parts
   * @param {Model} parts.model its lost and doubtful are kept here
   * @param {string} parts.userId
   * @param {{lost: number, lostOfOthers: number}} parts.limits how many of the last are kept: own ones, and those of
   *   others
   */
  constructor({ model, userId, limits }) {
    this.#model = model;
    this.#userId = userId;
    this.#limits = limits;
  }

  /** What is lost, and what may be. */
  all() {
    return [...this.#model.lost, ...this.#model.doubtful];
  }

  /** @param {Lost} lost */
  isMine({ message }) {
    return message.senderId === this.#userId;
  }

  /**
   * All that is held is in doubt from here on, also what was answered and has not come yet.
   * @param {OutboxEntry[]} entries of the outbox
   */
  doubt(entries) {
    const known = new Set(this.#model.doubtful.map(({ message }) => message.messageId));
    this.#model.doubtful = this.#last([...this.#model.doubtful, ...this.#held(entries).filter(({ message }) => !known.has(message.messageId))]);
  }

  /**
   * What is in doubt and did not come again is lost. What the user wrote of it is put into the outbox as refused, to be
   * sent again, unless the group itself is gone. Returns these outbox entries.
   * @returns {OutboxEntry[]}
   */
  settle() {
    const there = new Set([...this.#model.ledgers.values()].flatMap(({ messages }) => messages.map(identityOf)));
    const lost = this.#model.doubtful.filter((each) => this.#model.isLost(each) && !there.has(identityOf(each.message)));
    const again = lost
      .filter((each) => this.isMine(each) && each.message.clientMsgId && (this.#model.ledgers.has(each.message.conversationId) || each.peer !== null))
      .map(({ message, peer }) => entryOf(message, peer))
      .filter(({ clientMsgId }) => !this.#model.outbox.has(clientMsgId));
    for (const entry of again) this.#model.outbox.set(entry.clientMsgId, entry);
    const shown = new Set(this.#model.outbox.keys());
    const others = lost.filter((each) => !this.isMine(each) || !shown.has(each.message.clientMsgId ?? ""));
    this.#model.doubtful = [];
    this.#model.lost = this.#last([...this.#model.lost, ...others]);
    return again;
  }

  /**
   * Puts messages aside for good. Returns whether there were any.
   * @param {(lost: Lost) => boolean} isAside
   */
  drop(isAside) {
    if (!this.all().some(isAside)) return false;
    this.#model.lost = this.#model.lost.filter((each) => !isAside(each));
    this.#model.doubtful = this.#model.doubtful.filter((each) => !isAside(each));
    return true;
  }

  // The messages with content.
  /** @param {OutboxEntry[]} entries @returns {Lost[]} */
  #held(entries) {
    const sent = entries.filter(({ state, action }) => state === "sent" && action === "send").map((entry) => messageOf(entry, this.#userId));
    return [...this.#model.ledgers.values()].flatMap(({ conversationId, messages, maxContiguousSeq }) => {
      const { peer, title, clearedSeq } = this.#model.factsOf(conversationId);
      const coming = sent.filter((message) => message.conversationId === conversationId && message.seq > maxContiguousSeq);
      return [...messages, ...coming]
        .filter(({ seq, messageType, status }) => messageType !== "event" && status === "normal" && seq > clearedSeq)
        .map((message) => ({ message, peer, title }));
    });
  }

  // The last of these, as many as are kept, oldest first.
  /** @param {readonly Lost[]} all */
  #last(all) {
    const byTime = [...all].sort(({ message: a }, { message: b }) => a.serverTime - b.serverTime || a.seq - b.seq);
    const { lost, lostOfOthers } = this.#limits;
    const kept = new Set([...byTime.filter((each) => this.isMine(each)).slice(-lost), ...byTime.filter((each) => !this.isMine(each)).slice(-lostOfOthers)]);
    return byTime.filter((each) => kept.has(each));
  }
}

/**
 * Identifies a message, also after the server was restored.
 * @param {Message} message
 */
export function identityOf({ senderId, clientMsgId, messageId }) {
  return clientMsgId ? `${clientMsgId.length} ${clientMsgId}${senderId}` : messageId;
}

/**
 * Makes an own message an outbox entry again, as if it had been refused.
 * @param {Message} message @param {string | null} peer @returns {OutboxEntry}
 */
function entryOf({ conversationId, clientMsgId = "", messageType, text = null, data, replyTo, serverTime, clientTime = serverTime }, peer) {
  const fields = { messageType, ...(data && { data }), ...(replyTo && { replyTo }) };
  const address = peer === null ? { conversationId } : { to: peer };
  return { clientMsgId, order: serverTime, action: "send", address, fields, text, clientTime, state: "failed", error: { ...LOST }, busy: null, failures: 0, stored: true };
}

/**
 * The message that an outbox entry has become.
 * @param {OutboxEntry} entry @param {string} userId @returns {Message}
 */
function messageOf({ conversationId = "", seq = 0, messageId = "", clientMsgId, fields, text, serverTime = 0, clientTime }, userId) {
  const { messageType, data, replyTo } = fields;
  return { conversationId, seq, messageId, clientMsgId, senderId: userId, messageType, text, data, replyTo, version: 1, status: "normal", serverTime, clientTime };
}
