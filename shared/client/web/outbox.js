// What the user asked for and the server has not answered yet: messages, and changes of messages and
// groups. Each is sent, and sent again under the same clientMsgId, until there is an answer.

import { pauseAfter } from "./connection.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { Address, Clock, Entry, EntryRecord } from "./types.js"
 */

/** What is so of an entry that is not stored and not under way. */
export const NOT_IN_FLIGHT = Object.freeze({ busy: null, failures: 0, stored: false });

const MAX_ID_BYTES = 64; // of a clientMsgId; an earlier version made longer ones

/**
 * Makes an entry that is to be sent after all of entries.
 * @param {object} what
 * @param {Iterable<Entry>} what.entries
 * @param {Clock} what.clock
 * @param {string} what.action
 * @param {Address} what.address
 * @param {Record<string, any>} [what.fields]
 * @param {string | null} [what.text]
 * @returns {Entry}
 */
export function newEntry({ entries, clock, action, address, fields = {}, text = null }) {
  const last = Math.max(0, ...Array.from(entries, ({ order }) => order));
  return {
    clientMsgId: randomHex(16), // nothing of the device's name: that may be as long as the server takes
    order: Math.max(last + 1, clock.now()),
    action,
    address,
    fields,
    text: text?.toWellFormed?.() ?? text,
    clientTime: clock.now(),
    state: "sending",
    error: null,
    ...NOT_IN_FLIGHT,
  };
}

/**
 * Makes an entry that was refused one that is to be sent, after all of entries. Its clientMsgId stays, so that it is
 * committed once if the refusal was of another copy, unless it is the clientMsgId that is refused.
 * @param {Entry} entry
 * @param {Iterable<Entry>} entries
 * @param {Clock} clock
 * @returns {Entry}
 */
export function anew({ clientMsgId, action, address, fields, text, error }, entries, clock) {
  const entry = newEntry({ entries, clock, action, address, fields, text });
  const isRefused = error?.code === "IDEMPOTENCY_CONFLICT" || clientMsgId.length > MAX_ID_BYTES;
  return isRefused && action !== "createGroup" ? entry : { ...entry, clientMsgId };
}

export class Outbox {
  #parts;
  #entries;
  /** @type {object | null} One object per connection that may be sent over. */
  #turn = null;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
    this.#entries = parts.model.entries;
  }

  /** The entries, oldest first. */
  all() {
    return [...this.#entries.values()];
  }

  /** @param {string | undefined} clientMsgId */
  get(clientMsgId) {
    return clientMsgId === undefined ? undefined : this.#entries.get(clientMsgId);
  }

  /**
   * Adds an entry, once. Resolves once it is kept; only then is it sent.
   * @param {Entry} entry
   */
  async add(entry) {
    if (this.#entries.has(entry.clientMsgId)) return;
    this.#entries.set(entry.clientMsgId, entry);
    await this.keep(entry);
  }

  /**
   * Stores an entry that is there already.
   * @param {Entry} entry
   */
  async keep(entry) {
    await this.#parts.writer.commit({ outboxPut: [recordOf(entry)] }, null);
    entry.stored = true;
    this.pump();
  }

  /**
   * Forgets an entry. The caller deletes it from the store.
   * @param {string} clientMsgId
   */
  delete(clientMsgId) {
    this.#entries.delete(clientMsgId);
  }

  /** From here on entries are sent. */
  resume() {
    this.#turn = {};
    this.pump();
  }

  /** Nothing is sent until resume; an answer that comes late counts all the same. */
  pause() {
    this.#turn = null;
  }

  /**
   * Sends the oldest unanswered entry of each key that is not on its way already. Only the oldest:
   * frames of one client may be handled at the same time, in any order.
   */
  pump() {
    if (!this.#turn) return;
    const taken = new Set();
    for (const entry of this.#entries.values()) {
      if (entry.state !== "sending") continue;
      const key = this.#parts.model.keyOf(entry);
      if (taken.has(key)) continue;
      taken.add(key);
      if (entry.stored && entry.busy !== this.#turn) this.#transmit(this.#turn, entry);
    }
  }

  /** @param {object} turn @param {Entry} entry */
  async #transmit(turn, entry) {
    const { session, answers, random, timing, sleep } = this.#parts;
    entry.busy = turn;
    try {
      answers.answered(entry, await session.request(entry.action, requestOf(entry)));
    } catch (thrown) {
      const error = /** @type {any} */ (thrown);
      if (entry.state !== "sending") return; // its message arrived before the bad news about its reply
      if (!error.retryable) answers.refused(entry, error);
      else if (turn === this.#turn) await sleep(pauseAfter(error, random, entry.failures++, timing));
    } finally {
      if (entry.busy === turn) entry.busy = null;
      this.pump();
    }
  }
}

/**
 * What is stored of an entry.
 * @param {EntryRecord} entry
 * @returns {EntryRecord}
 */
export function recordOf({ clientMsgId, order, action, address, fields, text, clientTime, state, error }) {
  return { clientMsgId, order, action, address, fields, text, clientTime, state, error };
}

/** @param {Entry} entry */
function requestOf({ clientMsgId, action, address, fields, text, clientTime }) {
  return { ...address, ...fields, ...(text !== null && { text }), clientMsgId, ...(action === "send" && { clientTime }) };
}

/** @param {number} bytes */
function randomHex(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
