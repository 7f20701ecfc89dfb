// Pulls what a conversation lacks, its gap: one pull of a conversation at a time, a few conversations at once.

import { RequestError, fullJitter } from "./connection.js";
import { accountsForAll } from "./ledger.js";
import { Places } from "./places.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { Ledger } from "./ledger.js"
 */

const AT_ONCE = 4;

/**
 * One per connection; due does not include the random part, page is the last page that is read again, and places are for
 * pulls.
 * @typedef {{pulls: Map<Ledger, Promise<void>>, waits: Map<Ledger, {timer: any, due: number}>, rechecks: Map<Ledger, Promise<void>>, page: Promise<void>, places: Places}} Turn
 */

export class Pulls {
  #parts;
  /** @type {Turn | null} */
  #turn = null;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /** A connection is there; the pulls of an earlier one are void. */
  start() {
    this.stop();
    this.#turn = { pulls: new Map(), waits: new Map(), rechecks: new Map(), page: Promise.resolve(), places: new Places(AT_ONCE) };
  }

  stop() {
    for (const { timer } of this.#turn?.waits.values() ?? []) this.#parts.clock.clearTimeout(timer);
    this.#turn = null;
  }

  /**
   * Pulls these, from the last held entry on, which shows whether the server has it, too. If one fails the others are
   * pulled all the same. Rejects with the first error. What is in doubt is read again after that, which may be long:
   * what else changes is heard of meanwhile.
   * @param {Ledger[]} ledgers
   */
  async all(ledgers) {
    const turn = this.#turn;
    if (!turn) return;
    /** @type {unknown} */
    let failed = null;
    await Promise.all(ledgers.map((ledger) => this.#pull(turn, ledger, true).catch((error) => (failed ??= error))));
    if (failed) throw failed;
  }

  /**
   * Makes sure that a gap is pulled after a wait, unless pushes close it first. A random part is added to the wait,
   * because all members of a conversation hear of a gap at the same moment. A wait that is under way stays.
   * @param {Ledger} ledger @param {number} waitMs
   */
  mind(ledger, waitMs) {
    const turn = this.#turn;
    if (!turn || turn.pulls.has(ledger)) return;
    const due = this.#parts.clock.monotonic() + waitMs;
    const waiting = turn.waits.get(ledger);
    const isBehind = this.#parts.model.isBehind(ledger);
    if (waiting && isBehind && waiting.due <= due) return;
    this.#parts.clock.clearTimeout(waiting?.timer);
    turn.waits.delete(ledger);
    if (!isBehind) return;
    const timer = this.#parts.clock.setTimeout(() => {
      turn.waits.delete(ledger);
      const pull = ledger.hasGap ? this.#pull(turn, ledger) : Promise.resolve();
      pull.then(() => this.#recheck(turn, ledger)).catch((error) => {
        if (error.retryable && turn === this.#turn) this.mind(ledger, this.#patience(ledger));
      });
    }, waitMs + this.#parts.random() * this.#spreadMs(ledger));
    turn.waits.set(ledger, { timer, due });
  }

  // The time over which the pulls of all who hear of the same gap are spread.
  /** @param {Ledger} ledger */
  #spreadMs({ conversationId }) {
    const { model, timing } = this.#parts;
    const { memberCount = 0 } = model.facts.get(conversationId) ?? {};
    return Math.min(memberCount * timing.memberWaitMs, timing.spreadCapMs);
  }

  /** @param {Ledger} ledger */
  #patience(ledger) {
    const { random, timing } = this.#parts;
    const { failures } = ledger;
    return timing.gapWaitMs + (failures === 0 ? 0 : fullJitter(random, failures, timing));
  }

  // Callers share a pull that is under way.
  /**
   * @param {Turn} turn @param {Ledger} ledger
   * @param {boolean} [again] whether to ask for the last held entry as well
   */
  #pull(turn, ledger, again = false) {
    const work = async () => {
      if (turn !== this.#turn) return;
      this.#parts.entries.startLate(ledger);
      await this.#pages(turn, ledger, again);
    };
    return turn.pulls.get(ledger) ?? this.#alone(turn, ledger, () => turn.places.take(work));
  }

  // Does what has to be done by one at a time for a ledger.
  /** @param {Turn} turn @param {Ledger} ledger @param {() => Promise<void>} work */
  #alone(turn, ledger, work) {
    const pull = this.#tried(turn, ledger, work);
    turn.pulls.set(ledger, pull);
    return pull;
  }

  // Rejects with retryable errors only. A refusal, such as that of a removed member, is final: it must not keep the
  // cursor from moving on.
  /** @param {Turn} turn @param {Ledger} ledger @param {() => Promise<void>} work */
  async #tried(turn, ledger, work) {
    try {
      await work();
    } catch (thrown) {
      const error = /** @type {any} */ (thrown);
      ledger.failures++;
      if (error.retryable) throw error;
      this.#parts.log(`cannot sync ${ledger.conversationId}: ${error.message}`);
      ledger.settle(ledger.maxSeenSeq);
      const facts = this.#parts.model.facts.get(ledger.conversationId);
      if (facts) facts.recheckSeq = 0;
      return;
    } finally {
      turn.pulls.delete(ledger);
    }
    if (turn === this.#turn) this.mind(ledger, this.#patience(ledger)); // for what was heard of meanwhile, or is in doubt
  }

  // Syncs until the server says that there is no more.
  /** @param {Turn} turn @param {Ledger} ledger @param {boolean} again */
  async #pages(turn, ledger, again) {
    const { model, session, entries, limits } = this.#parts;
    const isCurrent = () => turn === this.#turn && model.ledgers.get(ledger.conversationId) === ledger;
    for (let overlap = again; isCurrent(); overlap = false) {
      const held = ledger.maxContiguousSeq;
      const afterSeq = overlap && ledger.get(held) ? held - 1 : held;
      const seenWhenAsked = ledger.maxSeenSeq;
      const page = await session.ask("sync", { conversationId: ledger.conversationId, afterSeq, limit: limits.pull });
      if (!isCurrent()) return;
      if (!accountsForAll(page, afterSeq)) throw new RequestError({ code: "PROTOCOL", message: `sync leaves out seqs after ${afterSeq}`, retryable: true });
      entries.pulled(ledger, page, held);
      if (!isCurrent()) return;
      if (page.nextSeq >= page.committedMaxSeq) {
        ledger.settle(seenWhenAsked);
        const stuck = ledger.hasGap && ledger.maxSeenSeq === seenWhenAsked;
        ledger.failures = stuck ? ledger.failures + 1 : 0;
        return;
      }
      if (page.nextSeq <= afterSeq) throw new RequestError({ code: "BUSY", message: "sync did not move", retryable: true });
    }
  }

  // Reads again what was held when the user came back, the newest first: what was recalled or erased meanwhile was not
  // told. That may be much. What follows comes first after each page, and of all conversations one page is read at a
  // time, so that none waits for it. Callers share what is under way.
  /** @param {Turn} turn @param {Ledger} ledger */
  #recheck(turn, ledger) {
    let recheck = turn.rechecks.get(ledger);
    if (!recheck) {
      recheck = this.#recheckAll(turn, ledger).finally(() => turn.rechecks.delete(ledger));
      turn.rechecks.set(ledger, recheck);
    }
    return recheck;
  }

  /** @param {Turn} turn @param {Ledger} ledger */
  async #recheckAll(turn, ledger) {
    while (turn === this.#turn && this.#parts.model.unchecked(ledger) > 0) {
      const page = turn.page.then(() => turn.pulls.get(ledger) ?? this.#alone(turn, ledger, () => this.#recheckPage(turn, ledger)));
      turn.page = page.catch(() => {});
      await page;
    }
  }

  /** @param {Turn} turn @param {Ledger} ledger */
  async #recheckPage(turn, ledger) {
    const { model, session, entries, limits } = this.#parts;
    const { conversationId } = ledger;
    if (ledger.hasGap) await this.#pages(turn, ledger, false); // what follows comes first
    const isCurrent = () => turn === this.#turn && model.ledgers.get(conversationId) === ledger;
    const seq = isCurrent() ? model.unchecked(ledger) : 0;
    if (seq === 0) return;
    const page = await session.ask("history", { conversationId, beforeSeq: seq + 1, limit: limits.pull });
    if (!isCurrent()) return;
    if (page.hasMore && page.nextBeforeSeq > seq) throw new RequestError({ code: "PROTOCOL", message: `history before ${seq + 1} did not move`, retryable: true });
    entries.pulledAgain(ledger, page);
  }
}
