// The work of the tab that leads: it keeps every conversation complete and in order, and everything the user asked for
// until the server has answered. Here its parts are put together; each is a module of its own.

import { Answers } from "./answers.js";
import { Changes } from "./changes.js";
import { RequestError, TIMING as CONNECTION_TIMING, systemClock } from "./connection.js";
import { Entries } from "./entries.js";
import { LostMessages } from "./lost.js";
import { OnScreen } from "./onscreen.js";
import { NOT_IN_FLIGHT, Outbox } from "./outbox.js";
import { Positions } from "./positions.js";
import { Pulls } from "./pulls.js";
import { Receipts } from "./receipts.js";
import { Rosters } from "./rosters.js";
import { Session } from "./session.js";
import { StartOver } from "./startover.js";
import { Writer } from "./writer.js";

/**
 * @import { Model } from "./model.js"
 * @import { Server } from "./session.js"
 * @import { Clock, ConversationKey, Store, StoreChange } from "./types.js"
 */

/** How patient the client is, in ms. */
export const TIMING = Object.freeze({
  ...CONNECTION_TIMING,
  gapWaitMs: 200, // a missing entry is often just late
  memberWaitMs: 2, // for each member: two devices of each make 1,000 pulls a second at most ...
  spreadCapMs: 2_000, // ... of the 1,000 that a group may have
  ownWaitMs: 2_000, // our own message is shown already, so its copy may take longer
  flushWaitMs: 5_000, // the outbox waits for the catch-up after a connect, but not for ever
  tellWaitMs: 1_000, // one request for positions that rise together
  // Between two questions of what changed. API Gateway ends a connection after 10 idle minutes, and a timer of a hidden
  // tab fires up to a minute late.
  heartbeatMs: 8.9 * 60_000,
});

export const LIMITS = Object.freeze({
  pull: 100, // entries in a page
  late: 300, // a conversation that is new to this device and longer than this begins with its end ...
  end: 100, // ... of so many entries
  outbox: 1_000, // entries that wait for an answer
  lost: 100, // own messages, the last, that are shown on when the server has lost them
  lostOfOthers: 1_000, // likewise those of others
});

/** @typedef {Partial<Record<keyof typeof TIMING, number>>} Timing in ms */
/** @typedef {Partial<Record<keyof typeof LIMITS, number>>} Limits */

/**
 * @typedef {object} EngineHooks
 * @property {() => void} changed whenever anything shown may have changed
 * @property {(change: StoreChange) => void} kept what became part of the model for good
 * @property {(conversationId: string, seqs: number[]) => void} news messages of others that have come and are not read
 * @property {() => void} fenced another tab has claimed the store: this engine has to be halted
 */

/**
 * What the parts of an engine share: what they were given, and each other.
 * @typedef {object} Parts
 * @property {string} userId
 * @property {string} deviceId
 * @property {Model} model
 * @property {Clock} clock
 * @property {() => number} random
 * @property {(message: string) => void} log
 * @property {Record<keyof typeof TIMING, number>} timing
 * @property {Record<keyof typeof LIMITS, number>} limits
 * @property {EngineHooks["changed"]} changed
 * @property {EngineHooks["news"]} news
 * @property {(ms: number) => Promise<void>} sleep
 * @property {Writer} writer
 * @property {Session} session
 * @property {Changes} changes
 * @property {Pulls} pulls
 * @property {Entries} entries
 * @property {Outbox} outbox
 * @property {Answers} answers
 * @property {Positions} positions
 * @property {Receipts} receipts
 * @property {Rosters} rosters
 * @property {OnScreen} onScreen
 * @property {LostMessages} lost
 * @property {StartOver} startOver
 */

/**
 * @typedef {object} EngineOptions
 * @property {Model} model
 * @property {Store} store
 * @property {number} term what the store returned when it was claimed
 * @property {EngineHooks} hooks
 * @property {string} userId
 * @property {string} deviceId
 * @property {Clock} [clock]
 * @property {() => number} [random]
 * @property {(message: string) => void} [log]
 * @property {Timing} [timing]
 * @property {Limits} [limits]
 */

export class Engine {
  #parts;

  /** @param {EngineOptions & Server} given */
  constructor({ model, store, term, hooks, userId, deviceId, clock = systemClock, random = Math.random, log = console.warn, timing, limits, ...server }) {
    const parts = /** @type {Parts} */ ({
      userId,
      deviceId,
      model,
      clock,
      random,
      log,
      timing: { ...TIMING, ...timing },
      limits: { ...LIMITS, ...limits },
      changed: () => parts.writer.isHalted || hooks.changed(),
      news: (conversationId, seqs) => parts.writer.isHalted || hooks.news(conversationId, seqs),
      sleep: (ms) => new Promise((resolve) => clock.setTimeout(() => resolve(undefined), ms)),
    });
    this.#parts = Object.assign(parts, {
      writer: new Writer(parts, store, term, hooks),
      session: new Session(parts, server),
      changes: new Changes(parts),
      pulls: new Pulls(parts),
      entries: new Entries(parts),
      outbox: new Outbox(parts),
      answers: new Answers(parts),
      positions: new Positions(parts),
      receipts: new Receipts(parts),
      rosters: new Rosters(parts),
      onScreen: new OnScreen(parts),
      lost: new LostMessages(parts),
      startOver: new StartOver(parts),
    });
  }

  /** Connects, unless the model's status says that the device is to stay away. */
  start() {
    const { model, session, writer, outbox } = this.#parts;
    const { state, detail } = model.status;
    if (state === "offline") session.stop(detail);
    else session.start();
    if (model.answered.length > 0) void writer.commit({ outboxDelete: model.answered });
    for (const entry of outbox.all()) {
      if (!entry.stored && entry.state === "sending") void outbox.keep(entry);
    }
  }

  /** Ends: the socket is closed at once, and nothing is written any more that was not asked for yet. */
  halt() {
    const { writer, session, model } = this.#parts;
    writer.isHalted = true;
    session.stop(model.status.detail);
  }

  /** Resolves when all that came is stored. */
  settled() {
    return this.#parts.writer.settled();
  }

  /** @param {number} [quietMs] see Connection */
  retryNow(quietMs) {
    this.#parts.session.retryNow(quietMs);
  }

  /**
   * Says which conversations are on screen: more is kept up to date of them.
   * @param {Set<ConversationKey>} keys
   */
  show(keys) {
    this.#parts.onScreen.show(keys);
  }

  /**
   * Does what a tab asks for, which may be asked for twice.
   * @param {string} method
   * @param {any[]} args
   */
  async perform(method, [first, second]) {
    const { answers, positions, startOver, session, entries, receipts } = this.#parts;
    switch (method) {
      case "accept":
        return answers.accept({ ...first, ...NOT_IN_FLIGHT });
      case "raise":
        return positions.raise(first, second);
      case "discard":
        return answers.discard(first);
      case "discardLost":
        return startOver.discard(first);
      case "retry":
        return answers.retry(first);
      case "setOffline":
        return first ? session.stop() : session.start();
      case "retryNow":
        return session.retryNow(first);
      case "loadEarlier":
        return entries.loadEarlier(first);
      case "receipts":
        return receipts.of(first, second);
      default:
        throw new RequestError({ code: "UNKNOWN_ACTION", message: `this tab cannot do ${method}` });
    }
  }
}
