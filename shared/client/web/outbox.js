// The outbox: what the user asked for and the server has not answered yet, messages and changes of messages and groups.
// Each entry is sent, and sent again under the same clientMsgId, until there is an answer.

import { pauseAfter } from "./connection.js";
import { Places, SLOW_MS } from "./places.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { Address, Clock, EntryRecord, OutboxEntry } from "./types.js"
 */

/** The fields of an entry that is neither stored nor under way. */
export const NOT_IN_FLIGHT = Object.freeze({ busy: null, failures: 0, stored: false });

const AT_ONCE = 4;
const MAX_ID_BYTES = 64; // of a clientMsgId; an earlier version of this code made longer ones

/**
 * Makes an entry to be sent after all of entries.
 * @param {object} what
 * @param {Iterable<OutboxEntry>} what.entries
 * @param {Clock} what.clock
 * @param {string} what.action
 * @param {Address} what.address
 * @param {Record<string, any>} [what.fields]
 * @param {string | null} [what.text]
 * @returns {OutboxEntry}
 */
export function newEntry({ entries, clock, action, address, fields = {}, text = null }) {
  const last = Math.max(0, ...Array.from(entries, ({ order }) => order));
  return {
    clientMsgId: randomHex(16), // without the device's name, which may be as long as the limit itself
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
 * Makes a refused entry one to be sent again, after all of entries. Its clientMsgId stays, so that it is committed once
 * if only a copy of it was refused, unless the clientMsgId itself was refused.
 * @param {OutboxEntry} entry @param {Iterable<OutboxEntry>} entries @param {Clock} clock @returns {OutboxEntry}
 */
export function anew({ clientMsgId, action, address, fields, text, error }, entries, clock) {
  const entry = newEntry({ entries, clock, action, address, fields, text });
  const isRefused = error?.code === "IDEMPOTENCY_CONFLICT" || clientMsgId.length > MAX_ID_BYTES;
  return isRefused && action !== "createGroup" ? entry : { ...entry, clientMsgId };
}

export class Outbox {
  #parts;
  #entries;
  /** @type {object | null} One object per connection, while entries may be sent. */
  #turn = null;

  #places = new Places(AT_ONCE);

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
    this.#entries = parts.model.outbox;
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
   * Adds an entry, once. Resolves when it is stored; it is sent only then.
   * @param {OutboxEntry} entry
   */
  async add(entry) {
    if (this.#entries.has(entry.clientMsgId)) return;
    this.#entries.set(entry.clientMsgId, entry);
    await this.keep(entry);
  }

  /**
   * Stores an entry that is there already.
   * @param {OutboxEntry} entry
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

  /** Entries are sent from here on. */
  resume() {
    this.#turn = {};
    this.#places = new Places(AT_ONCE);
    this.pump();
  }

  /** Nothing is sent until resume; an answer that comes late counts all the same. */
  pause() {
    this.#turn = null;
  }

  /**
   * Sends the oldest unanswered entry of each conversation unless it is under way, a few at a time. Only the oldest: the
   * server may handle frames of one client at the same time, in any order. Only a few: what is sent to hundreds of people
   * would be too fast, again and again, and the user thrown out for it.
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

  /** @param {object} turn @param {OutboxEntry} entry */
  async #transmit(turn, entry) {
    entry.busy = turn;
    await this.#places.take((leave) => this.#attempt(turn, entry, leave));
    if (entry.busy === turn) entry.busy = null;
    this.pump();
  }

  // Who is told to be too fast waits in its place, for the others would be told the same. Who waits for anything else, an
  // answer that does not come too, holds up no other.
  /** @param {object} turn @param {OutboxEntry} entry @param {() => void} leave */
  async #attempt(turn, entry, leave) {
    const { session, answers, clock, random, timing, sleep } = this.#parts;
    if (turn !== this.#turn || entry.state !== "sending") return;
    const slow = clock.setTimeout(leave, SLOW_MS);
    try {
      answers.answered(entry, await session.request(entry.action, requestOf(entry)).finally(() => clock.clearTimeout(slow)));
    } catch (thrown) {
      const error = /** @type {any} */ (thrown);
      if (entry.state !== "sending") return; // its message arrived before the bad news about its reply
      if (!error.retryable) answers.refused(entry, error);
      else if (turn === this.#turn) {
        const isTooFast = error.details?.retryAfterMs > 0 && error.field === undefined;
        if (!isTooFast) leave();
        await sleep(pauseAfter(error, random, entry.failures++, timing));
      }
    }
  }
}

/**
 * What is stored of an entry.
 * @param {EntryRecord} entry @returns {EntryRecord}
 */
export function recordOf({ clientMsgId, order, action, address, fields, text, clientTime, state, error }) {
  return { clientMsgId, order, action, address, fields, text, clientTime, state, error };
}

/** @param {OutboxEntry} entry */
function requestOf({ clientMsgId, action, address, fields, text, clientTime }) {
  return { ...address, ...fields, ...(text !== null && { text }), clientMsgId, ...(action === "send" && { clientTime }) };
}

/** @param {number} bytes */
function randomHex(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
