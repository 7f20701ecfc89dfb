// Tells the server how far the user is: one request at a time per conversation, a moment after
// something changed, until the server knows. Losing one is no harm, the next says the same and more.

import { pauseAfter } from "./connection.js";

export class Watermarks {
  #hooks;
  #clock;
  #random;
  #timing;
  #states = null; // conversationId → {timer, busy, asked}, of this connection

  /**
   * hooks.wanted(conversationId) gives {deliveredSeq, readSeq, clearedSeq}, 0 for what the server
   * knows; hooks.settled() resolves when all that came is stored; hooks.request(action, fields);
   * hooks.told(conversationId, positions) takes what the server answered.
   */
  constructor({ hooks, clock, random, timing }) {
    this.#hooks = hooks;
    this.#clock = clock;
    this.#random = random;
    this.#timing = timing;
  }

  /** A connection is there. */
  start() {
    this.stop();
    this.#states = new Map();
  }

  /** The connection is gone; what was not answered is told again over the next one. */
  stop() {
    for (const { timer } of this.#states?.values() ?? []) this.#clock.clearTimeout(timer);
    this.#states = null;
  }

  /** Something may have changed in a conversation. */
  note(conversationId) {
    if (!this.#states) return;
    if (!this.#states.has(conversationId)) this.#states.set(conversationId, { timer: null, busy: false, failures: 0, asked: {} });
    const state = this.#states.get(conversationId);
    if (state.timer === null && !state.busy && this.#due(conversationId, state)) this.#wait(conversationId, state, this.#timing.tellWaitMs);
  }

  #wait(conversationId, state, ms) {
    state.timer = this.#clock.setTimeout(() => {
      state.timer = null;
      this.#tell(conversationId, state);
    }, ms);
  }

  // What was asked for once on this connection is not asked again: the server may know better, and
  // answer with less.
  #due(conversationId, { asked }) {
    const due = Object.entries(this.#hooks.wanted(conversationId)).filter(([name, seq]) => seq > (asked[name] ?? 0));
    return due.length > 0 ? Object.fromEntries(due) : null;
  }

  async #tell(conversationId, state) {
    const states = this.#states;
    const due = this.#due(conversationId, state);
    if (!due) return;
    state.busy = true;
    let pause = 0;
    try {
      await this.#hooks.settled(); // delivered means: kept here
      if (states !== this.#states) return;
      await this.#ask(conversationId, due);
      state.failures = 0;
      Object.assign(state.asked, due);
    } catch (error) {
      if (error.retryable) pause = pauseAfter(error, this.#random, state.failures++, this.#timing);
      else Object.assign(state.asked, due);
    } finally {
      state.busy = false;
    }
    if (states === this.#states && this.#due(conversationId, state)) this.#wait(conversationId, state, this.#timing.tellWaitMs + pause);
  }

  async #ask(conversationId, { clearedSeq, ...positions }) {
    const { request, told } = this.#hooks;
    if (Object.keys(positions).length > 0) told(conversationId, await request("ack", { conversationId, ...positions }));
    if (clearedSeq !== undefined) told(conversationId, await request("clear", { conversationId, throughSeq: clearedSeq }));
  }
}
