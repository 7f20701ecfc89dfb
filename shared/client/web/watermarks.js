// Tells the server how far the user is: one request at a time per conversation, a moment after
// something changed, until the server knows. Losing one is no harm, the next says the same and more.
// Of what just came it is not answered: the next catch-up tells what the server knows, and what it lacks
// is told once more, and answered.

import { pauseAfter } from "./connection.js";

/**
 * @import { OwnPositions } from "./facts.js"
 * @import { Clock } from "./types.js"
 */

/**
 * @typedef {object} WatermarkHooks
 * @property {(conversationId: string) => OwnPositions} wanted what the server does not know yet
 * @property {() => Promise<void>} settled resolves when all that came is stored
 * @property {(action: string, fields: object) => Promise<any>} request
 * @property {(action: string, fields: object) => void} tell without an answer
 * @property {(conversationId: string) => boolean} confirmed whether the next catch-up will say how far the server knows us
 * @property {(conversationId: string, positions: OwnPositions) => void} told takes what the server answered
 */

/** @typedef {{timer: any, busy: boolean, failures: number, asked: OwnPositions, said: number}} TellState of a conversation, on one connection */

export class Watermarks {
  #hooks;
  #clock;
  #random;
  #timing;
  /** @type {Map<string, TellState> | null} */
  #states = null;

  /**
   * @param {object} parts
   * @param {WatermarkHooks} parts.hooks
   * @param {Clock} parts.clock
   * @param {() => number} parts.random
   * @param {{backoffBaseMs: number, backoffCapMs: number, tellWaitMs: number}} parts.timing
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

  /**
   * Something may have changed in a conversation.
   * @param {string} conversationId
   */
  note(conversationId) {
    if (!this.#states) return;
    const state = this.#states.get(conversationId) ?? { timer: null, busy: false, failures: 0, asked: {}, said: 0 };
    this.#states.set(conversationId, state);
    if (state.timer === null && !state.busy && this.#due(conversationId, state)) this.#wait(conversationId, state, this.#timing.tellWaitMs);
  }

  /**
   * @param {string} conversationId
   * @param {TellState} state
   * @param {number} ms
   */
  #wait(conversationId, state, ms) {
    state.timer = this.#clock.setTimeout(() => {
      state.timer = null;
      this.#tell(conversationId, state);
    }, ms);
  }

  // What was asked for once on this connection is not asked again: the server may know better, and
  // answer with less.
  /**
   * @param {string} conversationId
   * @param {TellState} state
   * @returns {OwnPositions | null}
   */
  #due(conversationId, { asked }) {
    const due = Object.entries(this.#hooks.wanted(conversationId)).filter(([name, seq]) => seq > (asked[/** @type {keyof OwnPositions} */ (name)] ?? 0));
    return due.length > 0 ? Object.fromEntries(due) : null;
  }

  /**
   * @param {string} conversationId
   * @param {TellState} state
   */
  async #tell(conversationId, state) {
    const states = this.#states;
    const due = this.#due(conversationId, state);
    if (!due) return;
    state.busy = true;
    let pause = 0;
    try {
      await this.#hooks.settled(); // delivered means: kept here
      if (states !== this.#states) return;
      if (this.#saySoftly(conversationId, due, state)) return;
      await this.#ask(conversationId, due);
      state.failures = 0;
      Object.assign(state.asked, due);
    } catch (thrown) {
      const error = /** @type {any} */ (thrown);
      if (error.retryable) pause = pauseAfter(error, this.#random, state.failures++, this.#timing);
      else Object.assign(state.asked, due);
    } finally {
      state.busy = false;
    }
    if (states === this.#states && this.#due(conversationId, state)) this.#wait(conversationId, state, this.#timing.tellWaitMs + pause);
  }

  // Tells without an answer, where one will come anyway. What was told so already, and the server turned out not
  // to know, is not told so again.
  /**
   * @param {string} conversationId
   * @param {OwnPositions} due
   * @param {TellState} state
   */
  #saySoftly(conversationId, { clearedSeq, ...positions }, state) {
    const through = Math.max(positions.deliveredSeq ?? 0, positions.readSeq ?? 0);
    if (clearedSeq !== undefined || through <= state.said || !this.#hooks.confirmed(conversationId)) return false;
    state.said = through;
    this.#hooks.tell("tell", { conversationId, ...positions });
    this.#hooks.told(conversationId, positions);
    return true;
  }

  /**
   * @param {string} conversationId
   * @param {OwnPositions} due
   */
  async #ask(conversationId, { clearedSeq, ...positions }) {
    const { request, told } = this.#hooks;
    if (Object.keys(positions).length > 0) told(conversationId, await request("ack", { conversationId, ...positions }));
    if (clearedSeq !== undefined) told(conversationId, await request("clear", { conversationId, throughSeq: clearedSeq }));
  }
}
