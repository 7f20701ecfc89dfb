// What a tab asks of the tab that leads, which may be itself: kept until it is answered, and asked again of the
// next leader if the one asked ends before. Everything that is asked for may thus be done twice without harm.

import { RequestError } from "./connection.js";

/** @import { Clock } from "./types.js" */

/** @typedef {{method: string, args: any[], isTimed: boolean}} Call isTimed says whether it ends by itself, unanswered */

const UNANSWERED = { code: "TIMEOUT", message: "the tab that has the connection did not answer", retryable: true };

export class Calls {
  #clock;
  #ask;
  #next = 1;
  /** @type {Map<number, {call: Call, resolve: (result: any) => void, reject: (error: Error) => void, timer: any}>} */
  #waiting = new Map();

  /**
   * @param {object} parts
   * @param {Clock} parts.clock
   * @param {(id: number, call: Call) => void} parts.ask asks whoever leads, if there is anyone; resolve and reject
   *   take the answer
   */
  constructor({ clock, ask }) {
    this.#clock = clock;
    this.#ask = ask;
  }

  /** An id for what needs no answer. */
  newId() {
    return this.#next++;
  }

  /**
   * @param {string} method
   * @param {any[]} args
   * @param {object} [options]
   * @param {number} [options.patienceMs] how long it waits for an answer
   * @param {boolean} [options.now] false leaves it to the next askAll
   * @returns {Promise<any>}
   */
  make(method, args, { patienceMs = Infinity, now = true } = {}) {
    const id = this.newId();
    const isTimed = patienceMs !== Infinity;
    const answer = new Promise((resolve, reject) => {
      const timer = isTimed ? this.#clock.setTimeout(() => this.reject(id, new RequestError(UNANSWERED)), patienceMs) : null;
      this.#waiting.set(id, { call: { method, args, isTimed }, resolve, reject, timer });
    });
    if (now) this.#askAgain(id);
    return answer;
  }

  /** The calls that are not answered, oldest first. */
  waiting() {
    return Array.from(this.#waiting.values(), ({ call }) => call);
  }

  /** Asks for all that is not answered. */
  askAll() {
    for (const id of [...this.#waiting.keys()]) this.#askAgain(id);
  }

  /**
   * @param {number} id
   * @param {any} result
   */
  resolve(id, result) {
    this.#take(id)?.resolve(result);
  }

  /**
   * @param {number} id
   * @param {Error} error
   */
  reject(id, error) {
    this.#take(id)?.reject(error);
  }

  /** @param {() => Error} errorOf */
  rejectAll(errorOf) {
    for (const id of [...this.#waiting.keys()]) this.reject(id, errorOf());
  }

  /** @param {number} id */
  #askAgain(id) {
    const waiting = this.#waiting.get(id);
    if (waiting) this.#ask(id, waiting.call);
  }

  /** @param {number} id */
  #take(id) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return undefined; // answered before, or given up
    this.#waiting.delete(id);
    if (waiting.timer !== null) this.#clock.clearTimeout(waiting.timer);
    return waiting;
  }
}
