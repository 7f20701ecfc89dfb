// The device's session with the server, over one connection after the other: what begins with a connection, what ends
// with it, and who waits for it.

import { checkOwner, dial, tokenOf } from "./checks.js";
import { Connection, RequestError, disconnected, pauseAfter } from "./connection.js";

/** @import { Parts } from "./engine.js" */

/**
 * @typedef {object} Server where it is, and who asks
 * @property {string} url
 * @property {() => Promise<string> | string} token returns a JWT for each connect; an error with `permanent` ends the
 *   attempts
 * @property {typeof globalThis.WebSocket} WebSocket
 */

export class Session {
  #parts;
  #connection;
  // Whether the token of the connection is known to be the user's: until then nothing is taken in or sent.
  #isKnown = false;
  /** @type {object | null} One object per connection: what belongs to an earlier one is void. */
  #turn = null;
  /** @type {any} The timer after which the outbox waits for the catch-up no more. */
  #flushing = null;
  /** @type {{resolve: () => void, reject: (error: Error) => void}[]} Who waits for the connection. */
  #waiting = [];

  /** @param {Parts} parts @param {Server} server */
  constructor(parts, { url, token, WebSocket }) {
    const { clock, random, log, timing, userId, deviceId } = parts;
    this.#parts = parts;
    this.#connection = new Connection({
      clock,
      random,
      log,
      timing,
      hooks: {
        open: async (isWanted) => {
          const { jwt, isKnown } = await tokenOf(token, userId);
          const { writer } = this.#parts;
          await writer.commit({}); // tells whether another tab leads by now: its connection must not be replaced
          if (writer.isHalted || !isWanted()) throw new Error("not wanted any more");
          this.#isKnown = isKnown;
          return dial(WebSocket, endpoint(url, deviceId), jwt);
        },
        onOpen: () => this.#arrived(),
        onPush: (frame) => this.#pushed(frame),
        onState: () => this.#stateChanged(),
      },
    });
  }

  /** Whether there is a connection, and it is the user's. */
  get isOpen() {
    return this.#turn !== null && this.#isKnown;
  }

  /** Connects, and stays connected until stop. */
  start() {
    this.#connection.start();
  }

  /** @param {string} [detail] why, for people */
  stop(detail) {
    this.#connection.stop(detail);
  }

  /** @param {number} [quietMs] see Connection */
  retryNow(quietMs) {
    this.#connection.retryNow(quietMs);
  }

  /** Resolves when there is a connection, and rejects if there is to be none. */
  reached() {
    const state = this.#state;
    if (state === "online") return Promise.resolve();
    if (state === "offline") return Promise.reject(disconnected());
    return new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /**
   * Asks the server once.
   * @param {string} action @param {object} [fields]
   */
  request(action, fields) {
    return this.#connection.request(action, fields);
  }

  /**
   * Asks for what the device pulls. A device that is too fast is told how long to wait and waits here, in its place
   * among the pulls: what the others asked meanwhile would be refused as well.
   * @param {string} action @param {object} fields
   */
  async ask(action, fields) {
    const turn = this.#turn;
    const { random, timing, sleep } = this.#parts;
    for (let failures = 0; ; ) {
      try {
        return await this.#connection.request(action, fields);
      } catch (thrown) {
        const error = /** @type {any} */ (thrown);
        if (!(error.details?.retryAfterMs > 0)) throw error;
        await sleep(pauseAfter(error, random, failures++, timing));
        if (turn !== this.#turn) throw error;
      }
    }
  }

  /**
   * Tells the server something that it does not answer.
   * @param {string} action @param {object} fields
   */
  tell(action, fields) {
    this.#connection.tell(action, fields);
  }

  /**
   * Takes the user that the server takes us for. Throws for good if it is another one.
   * @param {string | undefined} owner
   */
  identify(owner) {
    if (owner !== undefined) checkOwner(owner, this.#parts.userId);
    if (this.#isKnown) return;
    if (owner === undefined) throw new RequestError({ code: "PROTOCOL", message: "changes did not name the user, and the token is none that does", retryable: true });
    this.#isKnown = true;
    this.#begin();
    this.#stateChanged();
  }

  // A connection is of use once the user is known.
  get #state() {
    const { state } = this.#connection;
    return state === "online" && !this.#isKnown ? "connecting" : state;
  }

  #stateChanged() {
    const { model, writer, changed } = this.#parts;
    if (this.#connection.state !== "online") this.#leave();
    const state = this.#state;
    if (state !== "connecting") {
      for (const { resolve, reject } of this.#waiting.splice(0)) state === "online" ? resolve() : reject(disconnected());
    }
    if (writer.isHalted) return;
    const { detail } = this.#connection;
    model.status = { ...model.status, state, detail };
    if (detail === "replaced") void writer.commit({}); // tells whether it was another tab, which claimed the store before
    changed();
  }

  #arrived() {
    this.#leave();
    const turn = (this.#turn = {});
    const { changes } = this.#parts;
    changes.start();
    if (this.#isKnown) this.#begin();
    void changes.catchUp().then(() => turn === this.#turn && this.#flush());
  }

  // From here on the connection is the user's.
  #begin() {
    const { clock, timing, model, pulls, positions } = this.#parts;
    pulls.start();
    positions.start();
    for (const conversationId of model.ledgers.keys()) positions.note(conversationId);
    this.#flushing = clock.setTimeout(() => this.#flush(), timing.flushWaitMs);
  }

  #flush() {
    if (this.#flushing === null) return;
    this.#parts.clock.clearTimeout(this.#flushing);
    this.#flushing = null;
    this.#parts.outbox.resume();
  }

  #leave() {
    const { clock, outbox, pulls, positions, changes } = this.#parts;
    outbox.pause();
    pulls.stop();
    positions.stop();
    changes.stop();
    clock.clearTimeout(this.#flushing);
    this.#flushing = this.#turn = null;
  }

  /** @param {any} frame */
  #pushed(frame) {
    const { changes, entries, receipts } = this.#parts;
    if (!this.#isKnown) return changes.askAgain(); // it may be another user's; if not, the next answer tells of it
    switch (frame.type) {
      case "push":
      case "notify":
        for (const update of frame.updates) entries.pushed(update);
        return;
      case "receipt":
        return receipts.pushed(frame);
      case "changed":
        return void changes.catchUp();
      default: // a newer server may say more than we know
    }
  }
}

/** @param {string} url @param {string} deviceId */
function endpoint(url, deviceId) {
  const target = new URL(url);
  target.searchParams.set("device", deviceId);
  return target.href;
}
