// Writes to the store what becomes part of the model, one write after the other.

import { FencedError } from "./store.js";

/**
 * @import { EngineHooks, Parts } from "./engine.js"
 * @import { Ledger } from "./ledger.js"
 * @import { Message, Store, StoreChange } from "./types.js"
 */

const OF_A_VALUE = new Set(["DataCloneError", "DataError"]); // not of the store

export class Writer {
  #parts;
  #store;
  #term;
  #hooks;
  /** Whether the engine has ended: nothing is written any more but new entries of the outbox. */
  isHalted = false;
  /** @type {Promise<void>} */
  #writes = Promise.resolve();

  /**
   * @param {Parts} parts @param {Store} store
   * @param {number} term the one that the store returned when it was claimed
   * @param {EngineHooks} hooks
   */
  constructor(parts, store, term, hooks) {
    this.#parts = parts;
    this.#store = store;
    this.#term = term;
    this.#hooks = hooks;
  }

  /** Resolves when all that came is stored. */
  settled() {
    return this.#writes;
  }

  /**
   * Writes a change. After a write that failed no other follows: what is stored is complete up to there, and no later
   * cursor passes over what is missing.
   * @param {StoreChange} change
   * @param {number | null} [term] null for what any tab may write: a new entry of the outbox
   */
  commit(change, term = this.#term) {
    this.#writes = this.#writes.then(async () => {
      await this.#write(change, term);
      if (!this.isHalted) this.#hooks.kept(change);
    });
    return this.#writes;
  }

  /**
   * Writes what is known of a conversation besides its messages.
   * @param {Ledger} ledger
   */
  keep(ledger) {
    void this.commit({ conversations: [this.#parts.model.record(ledger)] });
    this.#parts.changed();
  }

  /** @param {StoreChange} change @param {number | null} term */
  async #write(change, term) {
    const { model, log, changed } = this.#parts;
    if (model.status.storeError || (this.isHalted && term !== null)) return;
    try {
      await this.#commitAll(change, term ?? undefined);
    } catch (thrown) {
      const error = /** @type {Error} */ (thrown);
      if (error instanceof FencedError) {
        this.#hooks.fenced();
        return;
      }
      model.status = { ...model.status, storeError: { name: error.name, message: error.message } };
      log(`could not store: ${error.message}`);
      changed();
    }
  }

  // If the change holds a value that cannot be stored, all else is stored, in an order that a crash does no harm to:
  // the messages before what stands for them.
  /** @param {StoreChange} change @param {number | undefined} term */
  async #commitAll(change, term) {
    if (await this.#isStored(change, term)) return;
    const { forget = false, messages = [], outboxPut = [], ...rest } = change;
    if (forget) await this.#store.commit({ forget }, term);
    for (const message of messages) {
      if (!(await this.#isStored({ messages: [message] }, term))) await this.#store.commit({ messages: [standInFor(message)] }, term);
    }
    for (const entry of outboxPut) await this.#isStored({ outboxPut: [entry] }, term); // else it lives in memory
    await this.#store.commit(rest, term);
  }

  /** @param {StoreChange} change @param {number | undefined} term */
  async #isStored(change, term) {
    try {
      await this.#store.commit(change, term);
      return true;
    } catch (thrown) {
      const error = /** @type {Error} */ (thrown);
      if (!OF_A_VALUE.has(error?.name)) throw error;
      this.#parts.log(`a value cannot be stored: ${error.message}`);
      return false;
    }
  }
}

/**
 * A message's place in the conversation, without its content.
 * @param {Message} message @returns {Message}
 */
function standInFor({ conversationId, seq, messageId, senderId, clientMsgId, serverTime }) {
  const names = JSON.parse(JSON.stringify({ messageId, senderId, clientMsgId, serverTime }));
  return { ...names, conversationId, seq, messageType: "custom", text: null, data: null, version: 1, status: "normal" };
}
