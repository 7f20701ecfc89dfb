// Fetches what a conversation lacks: one pull of a conversation at a time, a few conversations at once.

import { RequestError, fullJitter } from "./connection.js";

const AT_ONCE = 4;

export class Pulls {
  #hooks;
  #clock;
  #random;
  #timing;
  #limit;
  #log;
  #turn = null; // {pulls, waits} of this connection

  /**
   * hooks.begin(ledger) is called before each pull; hooks.request(action, fields); hooks.page(ledger,
   * page) takes a page in; hooks.isCurrent(ledger) tells whether the ledger is still in use. limit is
   * how many entries to ask for at a time.
   */
  constructor({ hooks, clock, random, timing, limit, log }) {
    this.#hooks = hooks;
    this.#clock = clock;
    this.#random = random;
    this.#timing = timing;
    this.#limit = limit;
    this.#log = log;
  }

  /** A connection is there; the pulls of an earlier one are void. */
  start() {
    this.stop();
    this.#turn = { pulls: new Map(), waits: new Map() };
  }

  stop() {
    for (const { timer } of this.#turn?.waits.values() ?? []) this.#clock.clearTimeout(timer);
    this.#turn = null;
  }

  /** Pulls these; one that fails does not keep the others from being pulled. Rejects with the first error. */
  async all(ledgers) {
    const turn = this.#turn;
    const queue = [...ledgers];
    let failed = null;
    const work = async () => {
      for (let ledger; turn === this.#turn && (ledger = queue.shift()); ) {
        await this.#pull(turn, ledger).catch((error) => (failed ??= error));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (failed) throw failed;
  }

  /** Makes sure that a gap is pulled after a wait, unless pushes close it first. */
  mind(ledger, waitMs) {
    const turn = this.#turn;
    if (!turn || turn.pulls.has(ledger)) return;
    const due = this.#clock.now() + waitMs;
    const waiting = turn.waits.get(ledger);
    if (waiting && ledger.hasGap && waiting.due <= due) return;
    this.#clock.clearTimeout(waiting?.timer);
    turn.waits.delete(ledger);
    if (!ledger.hasGap) return;
    const timer = this.#clock.setTimeout(() => {
      turn.waits.delete(ledger);
      this.#pull(turn, ledger).catch((error) => {
        if (error.retryable && turn === this.#turn) this.mind(ledger, this.#patience(ledger));
      });
    }, waitMs);
    turn.waits.set(ledger, { timer, due });
  }

  #patience(ledger) {
    const failures = ledger.failures ?? 0;
    return this.#timing.gapWaitMs + (failures === 0 ? 0 : fullJitter(this.#random, failures, this.#timing));
  }

  // Who asks while a conversation is being pulled shares the pull.
  #pull(turn, ledger) {
    let pull = turn.pulls.get(ledger);
    if (!pull) {
      pull = this.#pullOnce(turn, ledger);
      turn.pulls.set(ledger, pull);
    }
    return pull;
  }

  // Rejects with what is retryable. A refusal (we were removed, say) is final: it must not keep the
  // cursor from moving on.
  async #pullOnce(turn, ledger) {
    this.#hooks.begin(ledger);
    try {
      await this.#pages(turn, ledger);
    } catch (error) {
      ledger.failures = (ledger.failures ?? 0) + 1;
      if (error.retryable) throw error;
      this.#log(`cannot sync ${ledger.conversationId}: ${error.message}`);
      ledger.settle(ledger.maxSeenSeq);
      return;
    } finally {
      turn.pulls.delete(ledger);
    }
    if (turn === this.#turn) this.mind(ledger, this.#patience(ledger)); // what was heard of meanwhile
  }

  // Syncs until the server says that there is no more.
  async #pages(turn, ledger) {
    const isCurrent = () => turn === this.#turn && this.#hooks.isCurrent(ledger);
    while (isCurrent()) {
      const afterSeq = ledger.maxContiguousSeq;
      const seenWhenAsked = ledger.maxSeenSeq;
      const page = await this.#hooks.request("sync", { conversationId: ledger.conversationId, afterSeq, limit: this.#limit });
      if (!isCurrent()) return;
      this.#hooks.page(ledger, page);
      if (page.nextSeq >= page.committedMaxSeq) {
        ledger.settle(seenWhenAsked);
        const stuck = ledger.hasGap && ledger.maxSeenSeq === seenWhenAsked;
        ledger.failures = stuck ? (ledger.failures ?? 0) + 1 : 0;
        return;
      }
      if (page.nextSeq <= afterSeq) throw new RequestError({ code: "BUSY", message: "sync did not move", retryable: true });
    }
  }
}
