// What only this device still has: the server was restored to an earlier time, or begun anew. All that was held is in
// doubt then, until it is known what the server has; the rest is lost, and shown as such until it is put aside.

import { LOST } from "./rows.js";

/**
 * @import { Model } from "./model.js"
 * @import { Entry, Lost, Message } from "./types.js"
 */

export class LostMessages {
  #model;
  #userId;
  #limits;

  /**
   * @param {object} parts
   * @param {Model} parts.model whose lost and doubtful it keeps
   * @param {string} parts.userId
   * @param {{lost: number, lostOfOthers: number}} parts.limits how many are kept, the last: own ones, and those of others
   */
  constructor({ model, userId, limits }) {
    this.#model = model;
    this.#userId = userId;
    this.#limits = limits;
  }

  /** What is lost and what may be. */
  all() {
    return [...this.#model.lost, ...this.#model.doubtful];
  }

  /** @param {Lost} lost */
  isMine({ message }) {
    return message.senderId === this.#userId;
  }

  /**
   * From here on all that is held is in doubt, also what was answered and has not come yet.
   * @param {Entry[]} entries of the outbox
   */
  doubt(entries) {
    const known = new Set(this.#model.doubtful.map(({ message }) => message.messageId));
    this.#model.doubtful = this.#last([...this.#model.doubtful, ...this.#held(entries).filter(({ message }) => !known.has(message.messageId))]);
  }

  /**
   * What is in doubt and not there again is lost. What the user wrote of it is put among the entries as refused, to be
   * sent again, unless the group itself is gone. Gives these entries.
   * @returns {Entry[]}
   */
  settle() {
    const there = new Set([...this.#model.ledgers.values()].flatMap(({ messages }) => messages.map(identityOf)));
    const lost = this.#model.doubtful.filter((each) => this.#model.isLost(each) && !there.has(identityOf(each.message)));
    const again = lost
      .filter((each) => this.isMine(each) && each.message.clientMsgId && (this.#model.ledgers.has(each.message.conversationId) || each.peer !== null))
      .map(({ message, peer }) => entryOf(message, peer))
      .filter(({ clientMsgId }) => !this.#model.entries.has(clientMsgId));
    for (const entry of again) this.#model.entries.set(entry.clientMsgId, entry);
    const shown = new Set(this.#model.entries.keys());
    const others = lost.filter((each) => !this.isMine(each) || !shown.has(each.message.clientMsgId ?? ""));
    this.#model.doubtful = [];
    this.#model.lost = this.#last([...this.#model.lost, ...others]);
    return again;
  }

  /**
   * Puts messages aside for good. Says whether there were any.
   * @param {(lost: Lost) => boolean} isAside
   */
  drop(isAside) {
    if (!this.all().some(isAside)) return false;
    this.#model.lost = this.#model.lost.filter((each) => !isAside(each));
    this.#model.doubtful = this.#model.doubtful.filter((each) => !isAside(each));
    return true;
  }

  // The messages with content.
  /** @param {Entry[]} entries @returns {Lost[]} */
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

  // As many of these as are kept, the last, oldest first.
  /** @param {readonly Lost[]} all */
  #last(all) {
    const byTime = [...all].sort(({ message: a }, { message: b }) => a.serverTime - b.serverTime || a.seq - b.seq);
    const { lost, lostOfOthers } = this.#limits;
    const kept = new Set([...byTime.filter((each) => this.isMine(each)).slice(-lost), ...byTime.filter((each) => !this.isMine(each)).slice(-lostOfOthers)]);
    return byTime.filter((each) => kept.has(each));
  }
}

/**
 * What tells a message from all others in every world of the server.
 * @param {Message} message
 */
export function identityOf({ senderId, clientMsgId, messageId }) {
  return clientMsgId ? `${clientMsgId.length} ${clientMsgId}${senderId}` : messageId;
}

/**
 * The entry that an own message was, as one that was refused.
 * @param {Message} message
 * @param {string | null} peer
 * @returns {Entry}
 */
function entryOf({ conversationId, clientMsgId = "", messageType, text = null, data, replyTo, serverTime, clientTime = serverTime }, peer) {
  const fields = { messageType, ...(data && { data }), ...(replyTo && { replyTo }) };
  const address = peer === null ? { conversationId } : { to: peer };
  return { clientMsgId, order: serverTime, action: "send", address, fields, text, clientTime, state: "failed", error: { ...LOST }, busy: null, failures: 0, stored: true };
}

/**
 * The message that an entry has become.
 * @param {Entry} entry
 * @param {string} userId
 * @returns {Message}
 */
function messageOf({ conversationId = "", seq = 0, messageId = "", clientMsgId, fields, text, serverTime = 0, clientTime }, userId) {
  const { messageType, data, replyTo } = fields;
  return { conversationId, seq, messageId, clientMsgId, senderId: userId, messageType, text, data, replyTo, version: 1, status: "normal", serverTime, clientTime };
}
