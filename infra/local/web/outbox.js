// What the user asked for and the server has not answered yet: messages, and changes of messages and
// groups. Each is sent, and sent again under the same clientMsgId, until there is an answer.

import { pauseAfter } from "./connection.js";

/**
 * An entry: {clientMsgId, order, action, address, fields, text, clientTime, state, error}. The request
 * is action with address, fields and text. address is {conversationId}, {to: userId}, {group: the
 * clientMsgId of the createGroup that is to be answered first}, or {} for createGroup. state is
 * "sending", "sent" (then conversationId, seq and serverTime are there too) or "failed".
 */
export class Outbox {
  #entries = new Map(); // clientMsgId → entry, oldest first
  #hooks;
  #clock;
  #random;
  #timing;
  #deviceId;
  #lastOrder = 0;
  #turn = null; // one object per connection that may be sent over

  /**
   * hooks.keyOf(entry) says what belongs together and must keep its order; hooks.request(action,
   * fields); hooks.commit(change) stores; hooks.answered(entry, result) and hooks.refused(entry, error).
   */
  constructor({ hooks, deviceId, clock, random, timing }) {
    this.#hooks = hooks;
    this.#deviceId = deviceId;
    this.#clock = clock;
    this.#random = random;
    this.#timing = timing;
  }

  /** Takes what the store has. */
  load(stored) {
    for (const entry of [...stored].sort((a, b) => a.order - b.order)) {
      this.#entries.set(entry.clientMsgId, { action: "send", fields: { messageType: "text" }, ...entry, ...notInFlight(), stored: true });
      this.#lastOrder = entry.order;
    }
  }

  /** The entries, oldest first. */
  all() {
    return [...this.#entries.values()];
  }

  get(clientMsgId) {
    return this.#entries.get(clientMsgId);
  }

  /** Adds an entry. `stored` of the result resolves once it is kept; only then is it sent. */
  add({ action, address, fields = {}, text = null }) {
    this.#lastOrder = Math.max(this.#lastOrder + 1, this.#clock.now());
    const entry = {
      clientMsgId: `${this.#deviceId}-${randomHex(12)}`,
      order: this.#lastOrder,
      action,
      address,
      fields,
      text: text?.toWellFormed?.() ?? text,
      clientTime: this.#clock.now(),
      state: "sending",
      error: null,
      ...notInFlight(),
      stored: false,
    };
    this.#entries.set(entry.clientMsgId, entry);
    const stored = this.#hooks.commit({ outboxPut: [recordOf(entry)] }).then(() => {
      entry.stored = true;
      this.pump();
    });
    return { entry, stored };
  }

  /** Forgets an entry. The caller deletes it from the store. */
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
      const key = this.#hooks.keyOf(entry);
      if (taken.has(key)) continue;
      taken.add(key);
      if (entry.stored && entry.busy !== this.#turn) this.#transmit(this.#turn, entry);
    }
  }

  async #transmit(turn, entry) {
    entry.busy = turn;
    try {
      this.#hooks.answered(entry, await this.#hooks.request(entry.action, requestOf(entry)));
    } catch (error) {
      if (entry.state !== "sending") return; // its message arrived before the bad news about its reply
      if (!error.retryable) this.#hooks.refused(entry, error);
      else if (turn === this.#turn) await this.#sleep(pauseAfter(error, this.#random, entry.failures++, this.#timing));
    } finally {
      if (entry.busy === turn) entry.busy = null;
      this.pump();
    }
  }

  #sleep(ms) {
    return new Promise((resolve) => this.#clock.setTimeout(resolve, ms));
  }
}

/** What is stored of an entry. */
export function recordOf({ clientMsgId, order, action, address, fields, text, clientTime, state, error }) {
  return { clientMsgId, order, action, address, fields, text, clientTime, state, error };
}

function requestOf({ clientMsgId, action, address, fields, text, clientTime }) {
  return { ...address, ...fields, ...(text !== null && { text }), clientMsgId, ...(action === "send" && { clientTime }) };
}

function notInFlight() {
  return { busy: null, failures: 0 };
}

function randomHex(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
