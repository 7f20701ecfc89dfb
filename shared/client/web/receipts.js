// How far the others have received and read: pushed to us, or looked up.

import { rowsIn } from "./conversations.js";
import { receive } from "./facts.js";
import { RECEIPTS_MAX_MEMBERS } from "./rows.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { ConversationKey } from "./types.js"
 */

export class Receipts {
  #parts;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /** @param {{conversationId: string, userId: string, deliveredSeq?: number, readSeq?: number}} frame */
  pushed({ conversationId, userId, deliveredSeq = 0, readSeq = 0 }) {
    const { model, positions, writer } = this.#parts;
    if (userId === this.#parts.userId) return positions.know(conversationId, { deliveredSeq, readSeq });
    const ledger = model.ledgers.get(conversationId);
    if (!ledger) return;
    receive(model.factsOf(conversationId), userId, { deliveredSeq, readSeq });
    writer.keep(ledger);
  }

  /**
   * Who has received and who has read a message. Rejects with a RequestError.
   * @param {ConversationKey} key @param {number} seq
   */
  async of(key, seq) {
    const { model, session } = this.#parts;
    await session.reached();
    const conversationId = model.currentKey(key);
    /** @type {{delivered: string[], read: string[]}} */
    const all = { delivered: [], read: [] };
    let cursor = "";
    do {
      const page = await session.ask("receipts", { conversationId, seq, ...(cursor && { cursor }) });
      all.delivered.push(...page.delivered);
      all.read.push(...page.read);
      cursor = page.cursor ?? "";
    } while (cursor);
    return all;
  }

  /**
   * Looks them up for the last own message: they are pushed once, perhaps while we were away.
   * @param {string} conversationId
   */
  async lookUp(conversationId) {
    const { model, userId, writer } = this.#parts;
    const facts = model.facts.get(conversationId);
    if (!facts || facts.memberCount > RECEIPTS_MAX_MEMBERS || facts.peer === userId) return;
    const last = rowsIn(model, conversationId, Infinity, 0).findLast(({ mine, seq, kind, recalled }) => mine && seq !== null && kind !== "event" && !recalled);
    if (!last || last.seq === null || last.receipt === "read") return;
    const { seq } = last;
    const { delivered, read } = await this.of(conversationId, seq);
    if (model.facts.get(conversationId) !== facts) return;
    for (const reached of delivered) receive(facts, reached, { deliveredSeq: seq });
    for (const reached of read) receive(facts, reached, { readSeq: seq });
    writer.keep(model.ledger(conversationId));
  }
}
