// What a tab asks of the tab that leads, which may be itself: kept until it is answered, and asked again of the next
// leader if the one asked ends before. Everything that is asked for may thus be done twice without harm.

import { RequestError } from "./connection.js";
import { raise } from "./facts.js";
import { NOT_IN_FLIGHT, recordOf } from "./outbox.js";

/**
 * @import { OwnPositions } from "./facts.js"
 * @import { Role } from "./role.js"
 * @import { Clock, OutboxEntry } from "./types.js"
 */

/** @typedef {{method: string, args: any[], isTimed: boolean}} Call isTimed says whether it ends by itself, unanswered */

const UNANSWERED = { code: "TIMEOUT", message: "the tab that has the connection did not answer", retryable: true };
const AWAY = { code: "DISCONNECTED", message: "not connected", retryable: true };

export class Calls {
  #role;
  #clock;
  #log;
  #callMs;
  #next = 1;
  /** @type {Map<number, {call: Call, resolve: (result: any) => void, reject: (error: Error) => void, timer: any}>} */
  #waiting = new Map();
  /** @type {{code: string, message: string} | null} Why nothing is asked for any more. */
  #ending = null;

  /**
   * @param {Role} role of this tab
   * @param {object} options
   * @param {Clock} options.clock
   * @param {(message: string) => void} options.log
   * @param {number} options.callMs how long a tab waits for what the server has to be asked for
   */
  constructor(role, { clock, log, callMs }) {
    this.#role = role;
    this.#clock = clock;
    this.#log = log;
    this.#callMs = callMs;
  }

  /**
   * Has the leader do something, see perform of the engine. Returns its answer, however late.
   * @param {string} method @param {any[]} args @returns {Promise<any>}
   */
  ask(method, ...args) {
    return this.#make(method, args);
  }

  /**
   * As ask, where nobody waits.
   * @param {string} method @param {any[]} args
   */
  do(method, ...args) {
    this.#make(method, args).catch((error) => this.#log(`${method}: ${error.message}`));
  }

  /**
   * As ask, for what the server has to be asked for: there is an answer in time, or none.
   * @param {string} method @param {any[]} args
   */
  inquire(method, ...args) {
    return this.#make(method, args, { patienceMs: this.#callMs });
  }

  /**
   * Puts an entry into the outbox, and resolves once it is stored. Where this tab leads, the engine stores it. Where it
   * does not, it is in the shared store before the leader hears of it: whatever becomes of the two tabs, the next
   * leader finds it there.
   * @param {OutboxEntry} entry
   */
  async accept(entry) {
    const { engine, model, store } = this.#role;
    const record = recordOf(entry);
    if (engine || this.#ending) {
      await this.#make("accept", [record]);
      return;
    }
    this.#make("accept", [record], { now: !store.shared }).catch(() => {}); // it is sent all the same, see above
    model.outbox.set(entry.clientMsgId, entry);
    this.#role.changed();
    if (!store.shared) return;
    try {
      await store.commit({ outboxPut: [record] });
    } catch (error) {
      this.#log(`could not store: ${/** @type {Error} */ (error).message}`);
    }
    this.askAll();
  }

  /**
   * Raises what the user has read or cleared in a conversation; shown at once.
   * @param {string} conversationId @param {OwnPositions} positions
   */
  raise(conversationId, positions) {
    this.do("raise", conversationId, positions);
    if (this.#role.engine) return;
    this.overlay();
    this.#role.changed();
  }

  /** Has the leader look whether its connection lives; where nobody leads now, it need not be done later. */
  doubtConnection(/** @type {number} */ quietMs) {
    const { engine, follower } = this.#role;
    if (engine) engine.retryNow(quietMs);
    else follower?.call(this.#next++, "retryNow", [quietMs]);
  }

  /** Shows in the model what this tab asked for and the leader has not told of yet. */
  overlay() {
    const { facts, outbox } = this.#role.model;
    for (const { call: { method, args: [first, second] } } of this.#waiting.values()) {
      const raised = method === "raise" ? facts.get(first) : undefined;
      if (raised) raise(raised, second);
      if (method === "discard") outbox.delete(first);
      if (method === "accept" && !outbox.has(first.clientMsgId)) outbox.set(first.clientMsgId, { ...first, ...NOT_IN_FLIGHT });
    }
  }

  /** Asks for all that is not answered. */
  askAll() {
    for (const id of [...this.#waiting.keys()]) this.#askLeader(id);
  }

  /** @param {number} id @param {any} result */
  resolve(id, result) {
    this.#take(id)?.resolve(result);
  }

  /** @param {number} id @param {{code: string, message: string}} error */
  reject(id, error) {
    this.#take(id)?.reject(error instanceof Error ? error : new RequestError(error));
  }

  /**
   * Ends: what is not answered, and what is asked for from here on, rejects with this.
   * @param {{code: string, message: string}} why
   */
  end(why) {
    this.#ending = why;
    for (const id of [...this.#waiting.keys()]) this.reject(id, why);
  }

  /**
   * @param {string} method @param {any[]} args @param {object} [options]
   * @param {number} [options.patienceMs] how long it waits for an answer
   * @param {boolean} [options.now] false leaves it to the next askAll
   * @returns {Promise<any>}
   */
  #make(method, args, { patienceMs = Infinity, now = true } = {}) {
    if (this.#ending) return Promise.reject(new RequestError(this.#ending));
    const id = this.#next++;
    const isTimed = patienceMs !== Infinity;
    const answer = new Promise((resolve, reject) => {
      const timer = isTimed ? this.#clock.setTimeout(() => this.reject(id, UNANSWERED), patienceMs) : null;
      this.#waiting.set(id, { call: { method, args, isTimed }, resolve, reject, timer });
    });
    if (now) this.#askLeader(id);
    return answer;
  }

  // Asks whoever leads, if anyone does. Who leads next is asked again.
  /** @param {number} id */
  #askLeader(id) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    const { method, args, isTimed } = waiting.call;
    const { engine, follower, isAlone } = this.#role;
    if (engine) {
      engine.perform(method, args).then(
        (result) => engine === this.#role.engine && this.resolve(id, result),
        (error) => engine === this.#role.engine && this.reject(id, error),
      );
    } else if (follower) follower.call(id, method, args);
    else if (isAlone && isTimed) this.reject(id, AWAY);
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
