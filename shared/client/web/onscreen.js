// Keeps up to date what only people who look at a conversation need: who is in it, and how far the others are.

import { kindOf } from "./model.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { ConversationKey } from "./types.js"
 */

export class OnScreen {
  #parts;
  /** @type {Set<ConversationKey>} */
  #keys = new Set();

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /**
   * Says which conversations are on screen, in whichever tab.
   * @param {Set<ConversationKey>} keys
   */
  show(keys) {
    this.#keys = keys;
    void this.lookUp();
  }

  /** @param {ConversationKey} key a current one */
  has(key) {
    return this.#current().has(key);
  }

  /** Asks for what is not known yet. What fails is asked for again with the next catch-up. */
  async lookUp() {
    if (!this.#parts.session.isOpen) return;
    await Promise.all([...this.#current()].map((conversationId) => this.#lookUp(conversationId)));
  }

  #current() {
    return new Set([...this.#keys].map((key) => this.#parts.model.currentKey(key)));
  }

  /** @param {string} conversationId */
  async #lookUp(conversationId) {
    const { model, rosters, receipts, log } = this.#parts;
    const facts = model.facts.get(conversationId);
    const kind = kindOf(conversationId);
    if (!facts || facts.leftSeq > 0 || kind === "system") return;
    try {
      if (kind === "group") await rosters.refresh(conversationId);
      await receipts.lookUp(conversationId);
    } catch (thrown) {
      const error = /** @type {any} */ (thrown);
      if (!error.retryable) log(`cannot look up ${conversationId}: ${error.message}`);
    }
  }
}
