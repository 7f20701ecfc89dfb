// Tells the server how far the user has received, read and cleared, a moment after something changed, until the server
// knows: one request at a time, unless it is slow to be answered, for who comes back into hundreds of conversations
// would be too fast, again and again, and thrown out for it. A lost one does no harm, the next says the same and more.
// About what was just pushed the server is told without an answer, a little at a time, and is taken to know it until
// the next catch-up, which says what it knows of most conversations, though not of large ones. What it is not known to
// know is told once more, and answered.

import { pauseAfter } from "./connection.js";
import { know, raise } from "./facts.js";
import { Places, SLOW_MS } from "./places.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { OwnPositions } from "./facts.js"
 */

// So many are told without an answer in so many ms.
const MOST_UNANSWERED = 20;
const UNANSWERED_MS = 2_000;

/**
 * Of a conversation, on one connection. told is what was told without an answer since the last catch-up, said how far
 * any such was.
 * @typedef {{timer: any, busy: boolean, failures: number, asked: OwnPositions, told: OwnPositions, said: number}} TellState
 */

export class Positions {
  #parts;
  /** @type {Map<string, TellState> | null} */
  #states = null;
  #unanswered = { since: -Infinity, count: 0 };
  #places = new Places(1);

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /** A connection is there. */
  start() {
    this.stop();
    this.#states = new Map();
    this.#places = new Places(1);
  }

  /** The connection is gone; what was not answered is told again over the next one. */
  stop() {
    for (const { timer } of this.#states?.values() ?? []) this.#parts.clock.clearTimeout(timer);
    this.#states = null;
  }

  /**
   * Raises the user's positions in a conversation.
   * @param {string} conversationId @param {OwnPositions} positions
   */
  raise(conversationId, positions) {
    const { model, writer } = this.#parts;
    const ledger = model.ledgers.get(conversationId);
    if (!ledger || !raise(model.factsOf(conversationId), positions)) return;
    writer.keep(ledger);
    this.note(conversationId);
  }

  /**
   * Takes positions that the server is known to know.
   * @param {string} conversationId @param {OwnPositions} positions
   */
  know(conversationId, positions) {
    const { model, writer } = this.#parts;
    const ledger = model.ledgers.get(conversationId);
    if (!ledger) return;
    know(model.factsOf(conversationId), positions);
    writer.keep(ledger);
  }

  /** A catch-up has said what the server knows. Where it did not, nothing that was told without an answer is taken as known. */
  caughtUp() {
    for (const [conversationId, state] of this.#states ?? []) {
      state.told = {};
      this.note(conversationId);
    }
  }

  /**
   * Something may have changed in a conversation.
   * @param {string} conversationId
   */
  note(conversationId) {
    if (!this.#states) return;
    const state = this.#states.get(conversationId) ?? { timer: null, busy: false, failures: 0, asked: {}, told: {}, said: 0 };
    this.#states.set(conversationId, state);
    if (state.timer === null && !state.busy && this.#due(conversationId, state)) this.#wait(conversationId, state);
  }

  /** @param {string} conversationId @param {TellState} state @param {number} [pauseMs] */
  #wait(conversationId, state, pauseMs = 0) {
    const { clock, timing } = this.#parts;
    state.timer = clock.setTimeout(() => {
      state.timer = null;
      this.#tell(conversationId, state);
    }, timing.tellWaitMs + pauseMs);
  }

  // What was asked for once on this connection is not asked again: the server may know better, and answer with less.
  /** @param {string} conversationId @param {TellState} state @returns {OwnPositions | null} */
  #due(conversationId, { asked, told }) {
    const due = Object.entries(this.#untold(conversationId, told)).filter(([name, seq]) => seq > (asked[/** @type {keyof OwnPositions} */ (name)] ?? 0));
    return due.length > 0 ? Object.fromEntries(due) : null;
  }

  // How far we are beyond what the server knows, if that tells it of anything that others wrote: it knows who wrote
  // what, and our own entries are unread to none of our devices.
  /** @param {string} conversationId @param {OwnPositions} unanswered what it is taken to know @returns {OwnPositions} */
  #untold(conversationId, unanswered) {
    const { model, userId } = this.#parts;
    const ledger = model.ledgers.get(conversationId);
    if (!ledger) return {};
    const { told: known, readSeq, clearedSeq } = model.factsOf(conversationId);
    const told = { ...known };
    raise(told, unanswered);
    const { maxContiguousSeq: deliveredSeq } = ledger;
    return {
      ...(ledger.newsFor(userId, told.deliveredSeq) && { deliveredSeq }),
      ...(readSeq > told.readSeq && readSeq - told.readSeq > ledger.countBy(userId, told.readSeq, readSeq, []) && { readSeq }),
      ...(clearedSeq > told.clearedSeq && { clearedSeq }),
    };
  }

  /** @param {string} conversationId @param {TellState} state */
  async #tell(conversationId, state) {
    const { clock, random, timing, writer } = this.#parts;
    const states = this.#states;
    let due = this.#due(conversationId, state);
    if (!due) return;
    state.busy = true;
    let pauseMs = 0;
    try {
      await writer.settled(); // delivered means: stored here
      if (states !== this.#states) return;
      if (this.#tellUnanswered(conversationId, due, state)) return;
      await this.#places.take(async (leave) => {
        due = states === this.#states ? this.#due(conversationId, state) : null; // it may be more by now
        if (!due) return;
        const slow = clock.setTimeout(leave, SLOW_MS);
        await this.#ask(conversationId, due).finally(() => clock.clearTimeout(slow));
      });
      state.failures = 0;
      Object.assign(state.asked, due);
    } catch (thrown) {
      const error = /** @type {any} */ (thrown);
      if (error.retryable) pauseMs = pauseAfter(error, random, state.failures++, timing);
      else Object.assign(state.asked, due);
    } finally {
      state.busy = false;
    }
    if (states === this.#states && this.#due(conversationId, state)) this.#wait(conversationId, state, pauseMs);
  }

  // What was told so already, and the server turned out not to know, is not told so again. Nor is what would be too fast:
  // nobody would hear that it was refused.
  /** @param {string} conversationId @param {OwnPositions} due @param {TellState} state */
  #tellUnanswered(conversationId, { clearedSeq, ...positions }, state) {
    const { session, changes, clock } = this.#parts;
    const through = Math.max(positions.deliveredSeq ?? 0, positions.readSeq ?? 0);
    if (clearedSeq !== undefined || through <= state.said || !changes.willTellOf(conversationId)) return false;
    const now = clock.monotonic();
    if (now - this.#unanswered.since >= UNANSWERED_MS) this.#unanswered = { since: now, count: 0 };
    if (++this.#unanswered.count > MOST_UNANSWERED) return false;
    state.said = through;
    session.tell("tell", { conversationId, ...positions });
    Object.assign(state.told, positions);
    return true;
  }

  /** @param {string} conversationId @param {OwnPositions} due */
  async #ask(conversationId, { clearedSeq, ...positions }) {
    const { session } = this.#parts;
    if (Object.keys(positions).length > 0) this.know(conversationId, await session.ask("ack", { conversationId, ...positions }));
    if (clearedSeq !== undefined) this.know(conversationId, await session.ask("clear", { conversationId, throughSeq: clearedSeq }));
  }
}
