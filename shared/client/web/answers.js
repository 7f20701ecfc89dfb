// What the server's answers make of the outbox's entries, and what the user does about one that was refused.

import { anew, recordOf } from "./outbox.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { Ledger } from "./ledger.js"
 * @import { Message, OutboxEntry, Refusal } from "./types.js"
 */

const ANSWER_MS = 5_000; // by so much two answers may differ that take their time

export class Answers {
  #parts;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /**
   * Takes what the user asked for, once. Resolves when it is stored.
   * @param {OutboxEntry} entry
   */
  async accept(entry) {
    const { model, outbox, writer, changed } = this.#parts;
    if (model.holds(entry)) {
      await writer.commit({ outboxDelete: [entry.clientMsgId] }); // it was sent by whoever led before
      return;
    }
    const added = outbox.add(entry);
    changed();
    await added;
  }

  /**
   * Forgets what was refused; if that is a group that could not be made, also what was meant for it.
   * @param {string} clientMsgId
   */
  discard(clientMsgId) {
    const { userId, outbox, startOver, writer, changed } = this.#parts;
    const entry = outbox.get(clientMsgId);
    if (!entry) startOver.drop(({ message }) => message.senderId === userId && message.clientMsgId === clientMsgId);
    if (entry?.state !== "failed") return;
    const outboxDelete = [entry, ...this.#waitingFor(clientMsgId)].map((gone) => gone.clientMsgId);
    for (const id of outboxDelete) outbox.delete(id);
    void writer.commit({ outboxDelete });
    changed();
  }

  /**
   * Sends what was refused again, after all else, and with a group that could not be made what was meant for it.
   * Returns its clientMsgId, which is a new one if the server would refuse the old one for itself; null if nothing of
   * it was refused.
   * @param {string} clientMsgId @returns {Promise<string | null>}
   */
  async retry(clientMsgId) {
    const { model, clock, outbox, writer, changed } = this.#parts;
    const entry = outbox.get(clientMsgId);
    if (entry?.state !== "failed") return entry ? clientMsgId : null;
    const group = outbox.get(entry.address.group);
    if (group?.state === "failed") {
      await this.retry(group.clientMsgId);
      return clientMsgId;
    }
    const failed = [entry, ...this.#waitingFor(clientMsgId)].filter(({ state }) => state === "failed");
    const again = failed.map((old) => anew(old, model.outbox.values(), clock));
    for (const old of failed) outbox.delete(old.clientMsgId);
    const outboxDelete = failed.filter((old, i) => old.clientMsgId !== again[i].clientMsgId).map((old) => old.clientMsgId);
    if (outboxDelete.length > 0) void writer.commit({ outboxDelete });
    const added = again.map((next) => outbox.add(next));
    changed();
    await Promise.all(added);
    return again[0].clientMsgId;
  }

  /** @param {OutboxEntry} entry @param {any} result */
  answered(entry, result) {
    const { model, changes, startOver, entries } = this.#parts;
    const { conversationId, seq } = result;
    if (entry.action === "createGroup") {
      changes.describe(result);
      this.sent(entry, { conversationId, seq: 1 }); // a group begins with its making
    } else if (startOver.isReplaced(model.ledgers.get(conversationId), [result])) {
      startOver.begin(); // and it is answered again
    } else if (entry.action === "send" && !result.duplicate) {
      const ledger = model.ledger(conversationId);
      const message = this.#messageOf(entry, result);
      this.#compareClocks(message);
      if (entry.address.to !== undefined) model.setPeer(conversationId, entry.address.to);
      entries.take(ledger, [message], () => ledger.push([message], seq));
      changes.getToKnow(conversationId);
    } else this.sent(entry, result);
  }

  /**
   * Notes that an entry is committed, as an answer or the entry itself tells.
   * @param {OutboxEntry} entry
   * @param {{conversationId: string, seq: number, messageId?: string, serverTime?: number}} result
   */
  sent(entry, { conversationId, seq, messageId, serverTime }) {
    const { model, pulls, timing, writer, changed } = this.#parts;
    if (entry.address.to !== undefined) model.setPeer(conversationId, entry.address.to);
    const ledger = model.ledger(conversationId);
    ledger.see(seq);
    if (entry.state === "sent") return;
    Object.assign(entry, { state: "sent", conversationId, seq, messageId, serverTime });
    const waiting = entry.action === "createGroup" ? this.#nameGroup(entry.clientMsgId, conversationId) : [];
    this.forgetShown(ledger);
    void writer.commit({ outboxDelete: [entry.clientMsgId], outboxPut: waiting.map(recordOf), conversations: [model.record(ledger)] });
    pulls.mind(ledger, timing.ownWaitMs);
    changed();
  }

  /**
   * Forgets the entries whose messages the ledger shows: its own rows stand for them.
   * @param {Ledger} ledger
   */
  forgetShown({ conversationId, maxContiguousSeq }) {
    const { outbox } = this.#parts;
    for (const entry of outbox.all()) {
      if (entry.state === "sent" && entry.conversationId === conversationId && (entry.seq ?? Infinity) <= maxContiguousSeq) outbox.delete(entry.clientMsgId);
    }
  }

  /** @param {OutboxEntry} entry @param {Refusal} error */
  refused(entry, { code, message, retryable }) {
    const { writer, changed } = this.#parts;
    const waiting = this.#waitingFor(entry.clientMsgId);
    Object.assign(entry, { state: "failed", error: { code, message, retryable } });
    for (const other of waiting) Object.assign(other, { state: "failed", error: { code: "NOT_FOUND", message: "the group could not be made", retryable: false } });
    void writer.commit({ outboxPut: [entry, ...waiting].map(recordOf) });
    changed();
  }

  // The time to change a message ends by the server's clock, and the device's may be wrong.
  /** @param {Message} message the server's, of just now */
  #compareClocks({ serverTime }) {
    const { clock, model } = this.#parts;
    const ahead = clock.now() - serverTime;
    if (Math.abs(ahead - model.status.ahead) > ANSWER_MS) model.status = { ...model.status, ahead };
  }

  // The first answer to a send tells all of the message: it is not pushed to this connection.
  /**
   * @param {OutboxEntry} entry
   * @param {{conversationId: string, seq: number, messageId: string, serverTime: number}} result @returns {Message}
   */
  #messageOf({ clientMsgId, fields, text, clientTime }, { conversationId, seq, messageId, serverTime }) {
    const { userId: senderId, deviceId: senderDeviceId } = this.#parts;
    const content = { ...fields, ...(text && { text }) };
    return { messageType: "text", ...content, clientMsgId, senderId, senderDeviceId, clientTime, conversationId, seq, messageId, serverTime, version: 1, status: "normal" };
  }

  // Puts the group's address on what was meant for it while it was still to be made.
  /** @param {string} clientMsgId @param {string} conversationId */
  #nameGroup(clientMsgId, conversationId) {
    const { model, onScreen } = this.#parts;
    model.created.set(clientMsgId, conversationId);
    if (onScreen.has(conversationId)) void onScreen.lookUp();
    const waiting = this.#waitingFor(clientMsgId);
    for (const entry of waiting) entry.address = { conversationId };
    return waiting;
  }

  // What is meant for a group that is still to be made.
  /** @param {string} clientMsgId */
  #waitingFor(clientMsgId) {
    return this.#parts.outbox.all().filter(({ address }) => address.group === clientMsgId);
  }
}
