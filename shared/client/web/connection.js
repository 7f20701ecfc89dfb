// One device's connection to the server: it dials, matches replies to requests, replaces the socket before the
// platform's two-hour limit and when it is dead, and comes back after a loss. It knows nothing about messages.

/** @import { Clock, ConnectionState } from "./types.js" */

/** API Gateway takes frames up to 32 KB; longer ones close the connection with 1009. */
export const MAX_FRAME_BYTES = 32 * 1024;

export const TIMING = Object.freeze({
  backoffBaseMs: 300,
  backoffCapMs: 10_000,
  requestTimeoutMs: 10_000,
  dialTimeoutMs: 15_000,
  probeMs: 5_000, // how long a doubtful connection has to show that it works
  stableMs: 5_000, // a connection that lived this long ends a row of failed attempts
  lifeMs: 115 * 60_000, // API Gateway closes after two hours
  lifeJitterMs: 10 * 60_000, // so that devices that came at the same time do not come back at the same time
});

// A device that comes back after one of these throws out the one that took its place, and is thrown out in turn, for
// ever: a newer connection of this very device ("replaced"), or one device too many of this user ("devices").
const FINAL_GOODBYES = new Set(["replaced", "devices"]);

/** @type {Clock} */
export const systemClock = Object.freeze({
  now: () => Date.now(),
  monotonic: () => performance.now(),
  setTimeout: (fn, ms) => setTimeout(fn, ms),
  clearTimeout: (timer) => clearTimeout(timer),
});

/**
 * A delay anywhere between nothing and an exponentially growing, capped bound ("full jitter").
 * @param {() => number} random @param {number} attempt @param {{backoffBaseMs: number, backoffCapMs: number}} timing
 */
export function fullJitter(random, attempt, { backoffBaseMs, backoffCapMs }) {
  return random() * Math.min(backoffCapMs, backoffBaseMs * 2 ** Math.min(attempt, 30));
}

/**
 * The pause before asking again, in ms: what the server asked for, up to the cap, plus the jitter.
 * @param {{details?: any}} error @param {() => number} random @param {number} attempt
 * @param {{backoffBaseMs: number, backoffCapMs: number}} timing
 */
export function pauseAfter(error, random, attempt, timing) {
  const asked = error.details?.retryAfterMs;
  return (asked > 0 ? Math.min(asked, timing.backoffCapMs) : 0) + fullJitter(random, attempt, timing);
}

/**
 * A request that got no result. code is one of the protocol's or of the client's own (see the README). If retryable is
 * true, asking again may help. field names what is wrong, details may say more.
 */
export class RequestError extends Error {
  /** @param {{code: string, message?: string, retryable?: boolean, field?: string, details?: any}} error */
  constructor({ code, message, retryable = false, field, details }) {
    super(message || code);
    this.name = "RequestError";
    this.code = code;
    this.retryable = retryable;
    this.field = field;
    this.details = details;
  }
}

/**
 * @typedef {object} ConnectionHooks
 * @property {(isWanted: () => boolean) => Promise<WebSocket>} open returns a new socket, unless it is not wanted any
 *   more; an error with `permanent` ends the attempts
 * @property {() => void} onOpen
 * @property {(frame: any) => void} onPush
 * @property {() => void} onState
 */

/** @typedef {{resolve: (result: any) => void, reject: (error: RequestError) => void, timer: any}} Pending */

export class Connection {
  /**
   * "offline": not wanted. "connecting": wanted, but not open. "online": open.
   * @type {ConnectionState}
   */
  state = "offline";
  /** The reason of the state, for people; often empty. */
  detail = "";

  #hooks;
  #clock;
  #random;
  #timing;
  #log;
  #wanted = false;
  /** @type {WebSocket | null} */
  #socket = null;
  #turn = 0; // grows with every dial and drop; what belongs to an older turn is void
  #attempt = 0;
  #nextId = 1;
  /** @type {Map<string, Pending>} */
  #pending = new Map();
  /** @type {Set<any>} */
  #timers = new Set(); // everything that must not outlive the current turn
  #heardAt = 0;
  #probing = false;

  /**
   * @param {object} parts
   * @param {ConnectionHooks} parts.hooks
   * @param {Clock} [parts.clock]
   * @param {() => number} [parts.random]
   * @param {Partial<Record<keyof typeof TIMING, number>>} [parts.timing] in ms
   * @param {(message: string) => void} [parts.log]
   */
  constructor({ hooks, clock = systemClock, random = Math.random, timing = {}, log = console.warn }) {
    this.#hooks = hooks;
    this.#clock = clock;
    this.#random = random;
    this.#timing = { ...TIMING, ...timing };
    this.#log = log;
  }

  /** Connects and stays connected until stop. */
  start() {
    if (this.#wanted) return;
    this.#wanted = true;
    this.#attempt = 0;
    this.#dial();
  }

  /** Closes the socket and stays away until start. */
  stop(detail = "") {
    this.#wanted = false;
    this.#drop();
    this.#setState("offline", detail);
  }

  /**
   * To be called when the network may have changed: ends a waiting time, and replaces a connection that does not
   * answer. A connection over which something came in the last quietMs is not doubted.
   * @param {number} [quietMs]
   */
  retryNow(quietMs = 0) {
    if (this.state === "online") {
      if (this.#silentFor(quietMs)) void this.#probe();
    } else if (this.#wanted && !this.#socket) this.#dial();
  }

  /**
   * Sends a request and resolves to its result, or rejects with a RequestError: the server's own, TIMEOUT,
   * DISCONNECTED, or TOO_LARGE for a frame over the limit. A request that failed may have been carried out all the
   * same.
   * @param {string} action @param {object} [fields] @param {number} [patienceMs] @returns {Promise<any>}
   */
  request(action, fields = {}, patienceMs = this.#timing.requestTimeoutMs) {
    const socket = this.#socket;
    if (this.state !== "online" || !socket) return Promise.reject(disconnected());
    const id = `r${this.#nextId++}`;
    const frame = JSON.stringify({ action, id, ...fields });
    if (new TextEncoder().encode(frame).length > MAX_FRAME_BYTES) {
      return Promise.reject(new RequestError({ code: "TOO_LARGE", message: `the ${action} request is over ${MAX_FRAME_BYTES / 1024} KB` }));
    }
    return new Promise((resolve, reject) => {
      const askedAt = this.#clock.monotonic();
      const timer = this.#after(patienceMs, () => this.#timedOut(id, action, askedAt));
      this.#pending.set(id, { resolve, reject, timer });
      socket.send(frame);
    });
  }

  /**
   * Sends what the server does not answer. Whether it arrives is not known.
   * @param {string} action @param {object} fields
   */
  tell(action, fields) {
    if (this.state !== "online" || !this.#socket) return;
    this.#socket.send(JSON.stringify({ action, id: `r${this.#nextId++}`, ...fields }));
  }

  async #dial() {
    this.#drop();
    const turn = this.#turn;
    this.#setState("connecting", this.detail);
    this.#after(this.#timing.dialTimeoutMs, () => this.#lost("the server did not answer"));
    let socket;
    try {
      socket = await this.#hooks.open(() => turn === this.#turn);
    } catch (thrown) {
      if (turn !== this.#turn) return;
      const error = /** @type {any} */ (thrown);
      if (error.permanent) this.stop(error.message);
      else this.#lost(error.message);
      return;
    }
    if (turn !== this.#turn) {
      socket.close();
      return;
    }
    this.#socket = socket;
    socket.onopen = () => this.#opened();
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = socket.onerror = () => this.#lost(this.state === "online" ? "the connection was lost" : "the server refused or could not be reached");
  }

  #opened() {
    this.#clearTimers(); // the dial timeout
    this.#heardAt = this.#clock.monotonic();
    this.#after(this.#timing.stableMs, () => (this.#attempt = 0));
    this.#after(this.#timing.lifeMs - this.#random() * this.#timing.lifeJitterMs, () => this.#again(""));
    this.#setState("online");
    this.#hooks.onOpen();
  }

  // Asks whether the server is there: a socket whose other end is gone can look open for many minutes.
  async #probe() {
    if (this.#probing) return;
    this.#probing = true;
    const turn = this.#turn;
    try {
      await this.request("ping", {}, this.#timing.probeMs);
    } catch (thrown) {
      const error = /** @type {RequestError} */ (thrown);
      if (turn === this.#turn && error.code === "TIMEOUT" && this.#silentFor(this.#timing.probeMs)) {
        this.#lost("the server stopped answering");
      }
    } finally {
      if (turn === this.#turn) this.#probing = false;
    }
  }

  /** @param {number} ms */
  #silentFor(ms) {
    return this.#clock.monotonic() - this.#heardAt >= ms;
  }

  /** @param {string} id @param {string} action @param {number} askedAt */
  #timedOut(id, action, askedAt) {
    this.#settle(id, (pending) => pending.reject(new RequestError({ code: "TIMEOUT", message: `no answer to ${action}`, retryable: true })));
    if (action !== "ping" && this.#heardAt <= askedAt) this.#probe();
  }

  /** @param {string} data */
  #receive(data) {
    this.#heardAt = this.#clock.monotonic();
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      this.#log("ignored a frame that is not JSON");
      return;
    }
    if (frame?.type === "goodbye") this.#goodbye(frame.reason);
    else if (frame?.id !== undefined) this.#answered(frame);
    else if (frame?.type === "error" || (frame?.type === undefined && frame?.message)) this.#failedSomewhere(frame);
    else this.#pushed(frame);
  }

  /** @param {any} frame */
  #answered({ id, type, result, error }) {
    this.#settle(id, (pending) => {
      if (type === "reply") pending.resolve(result);
      else pending.reject(new RequestError(error ?? { code: "INTERNAL", retryable: true }));
    });
  }

  // API Gateway's own error frames, such as {"message": "Internal server error"}, do not say which request they answer.
  // Every request here may be repeated, so all that wait are.
  /** @param {any} frame */
  #failedSomewhere(frame) {
    const message = frame.error?.message ?? frame.message;
    for (const id of [...this.#pending.keys()]) {
      this.#settle(id, (pending) => pending.reject(new RequestError({ code: "INTERNAL", message, retryable: true })));
    }
  }

  // A frame that cannot be handled must not stop those after it.
  /** @param {any} frame */
  #pushed(frame) {
    try {
      this.#hooks.onPush(frame);
    } catch (error) {
      this.#log(`ignored a push of type ${frame?.type}: ${error}`);
    }
  }

  /** @param {string} reason */
  #goodbye(reason) {
    if (FINAL_GOODBYES.has(reason)) this.stop(reason);
    else this.#again(reason);
  }

  /** @param {string} detail */
  #again(detail) {
    this.#lost(detail, this.#attempt === 0);
  }

  /** @param {string} detail @param {boolean} [atOnce] */
  #lost(detail, atOnce = false) {
    this.#drop();
    const delay = atOnce ? 0 : fullJitter(this.#random, this.#attempt, this.#timing);
    this.#attempt++;
    this.#after(delay, () => this.#dial());
    this.#setState("connecting", detail);
  }

  #drop() {
    this.#turn++;
    this.#probing = false;
    this.#clearTimers();
    const socket = this.#socket;
    this.#socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = socket.onerror = null;
      socket.close();
    }
    if (this.state === "online") this.state = "connecting"; // no request may start from a rejection below
    for (const id of [...this.#pending.keys()]) this.#settle(id, (pending) => pending.reject(disconnected()));
  }

  /** @param {string} id @param {(pending: Pending) => void} how */
  #settle(id, how) {
    const pending = this.#pending.get(id);
    if (!pending) return; // a late or repeated answer
    this.#pending.delete(id);
    this.#clock.clearTimeout(pending.timer);
    this.#timers.delete(pending.timer);
    how(pending);
  }

  /** @param {number} ms @param {() => void} fn */
  #after(ms, fn) {
    const timer = this.#clock.setTimeout(() => {
      this.#timers.delete(timer);
      fn();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }

  #clearTimers() {
    for (const timer of this.#timers) this.#clock.clearTimeout(timer);
    this.#timers.clear();
  }

  /** @param {ConnectionState} state @param {string} [detail] */
  #setState(state, detail = "") {
    this.state = state;
    this.detail = detail;
    this.#hooks.onState();
  }
}

/** The error of a request without a connection. */
export function disconnected() {
  return new RequestError({ code: "DISCONNECTED", message: "not connected", retryable: true });
}
