// Catches up: asks the server what changed, and has it pulled. Pushes make the client fast; this makes it right.

import { disconnected, fullJitter } from "./connection.js";
import { describe } from "./facts.js";

/** @import { Parts } from "./engine.js" */

/** @typedef {{heartbeat: any, catching: Promise<void> | null, again: boolean, headsCursor?: string}} Turn one per connection */

export class Changes {
  #parts;
  /** @type {Turn | null} */
  #turn = null;
  /** @type {Set<string>} The conversations with entries that were pushed since we last asked. */
  #fresh = new Set();

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /** There is a connection; catchUp is to follow. */
  start() {
    this.#turn = { heartbeat: null, catching: null, again: false };
  }

  stop() {
    this.#parts.clock.clearTimeout(this.#turn?.heartbeat);
    this.#turn = null;
  }

  /** Has a catch-up that is under way ask once more. */
  askAgain() {
    if (this.#turn) this.#turn.again = true;
  }

  /** Asks what changed and pulls it, again if called meanwhile. Resolves when that is done, or the connection is gone. */
  catchUp() {
    const turn = this.#turn;
    if (!turn) return Promise.resolve();
    turn.again = true;
    turn.catching ??= this.#catchUp(turn).finally(() => (turn.catching = null));
    return turn.catching;
  }

  /**
   * Notes that entries of a conversation were pushed.
   * @param {string} conversationId
   */
  notePush(conversationId) {
    this.#fresh.add(conversationId);
  }

  /**
   * Whether the next answer is to have a conversation in it, and how far the server knows us there.
   * @param {string} conversationId
   */
  willTellOf(conversationId) {
    return this.#fresh.has(conversationId);
  }

  /**
   * Asks what a conversation is of which only entries are known.
   * @param {string} conversationId
   */
  getToKnow(conversationId) {
    const { kind, title, peer } = this.#parts.model.factsOf(conversationId);
    if (kind === null && title === null && peer === null) void this.catchUp();
  }

  /**
   * Takes a line of the user's list of conversations. Returns the ledger of its conversation.
   * @param {any} line
   */
  describe(line) {
    const { model, positions, rosters, writer } = this.#parts;
    const { conversationId } = line;
    const ledger = model.ledger(conversationId);
    const facts = model.factsOf(conversationId);
    describe(facts, line);
    positions.note(conversationId);
    model.notePeer(conversationId);
    if (facts.leftSeq > 0) rosters.forget(conversationId);
    writer.keep(ledger);
    return ledger;
  }

  /** @param {Turn} turn */
  async #catchUp(turn) {
    const { random, timing, sleep, session, log, onScreen } = this.#parts;
    for (let failures = 0; turn === this.#turn && turn.again; ) {
      turn.again = false;
      try {
        await this.#round(turn);
        failures = 0;
      } catch (thrown) {
        if (turn !== this.#turn) return;
        const error = /** @type {any} */ (thrown);
        if (error.permanent) return session.stop(error.message);
        if (!error.retryable) {
          log(`could not catch up: ${error.message}`);
          continue;
        }
        turn.again = true;
        await sleep(fullJitter(random, failures++, timing));
      }
    }
    if (turn !== this.#turn) return;
    this.#scheduleHeartbeat(turn);
    void onScreen.lookUp();
  }

  // Asking keeps the connection, tells that it is dead if it is, and finds what the last push into a quiet conversation
  // told, if that was lost.
  /** @param {Turn} turn */
  #scheduleHeartbeat(turn) {
    const { clock, timing } = this.#parts;
    clock.clearTimeout(turn.heartbeat);
    turn.heartbeat = clock.setTimeout(() => void this.catchUp(), timing.heartbeatMs);
  }

  // The cursor moves last: were it stored before the entries, a crash in between would hide them from every later
  // answer.
  /** @param {Turn} turn */
  async #round(turn) {
    const { model, positions, pulls, startOver, writer, changed } = this.#parts;
    const { world } = startOver;
    const isVoid = () => turn !== this.#turn || world !== startOver.world;
    const asked = model.syncCursor ?? 0;
    const held = new Map([...model.ledgers.values()].map((ledger) => [ledger.conversationId, ledger.maxContiguousSeq]));
    this.#fresh.clear();
    const changes = await this.#ask(turn, asked);
    this.#fresh.clear(); // what came meanwhile may be in the answer, and not told of again
    if (isVoid()) return;
    if (changes.syncCursor < asked || startOver.isContradicted(changes, held)) return startOver.begin();
    const { conversations, heads = [], syncCursor, windows = {}, headsCursor, more } = changes;
    if (JSON.stringify(windows) !== JSON.stringify(model.status.windows)) model.status = { ...model.status, windows };
    for (const line of conversations) this.describe(line).see(line.lastSeq);
    if (!more) positions.caughtUp();
    for (const { conversationId, committedMaxSeq } of heads) model.ledger(conversationId).see(committedMaxSeq);
    changed();
    await pulls.all([...model.ledgers.values()].filter((ledger) => model.isBehind(ledger)));
    if (isVoid()) return;
    const settled = more ? {} : startOver.settle();
    model.syncCursor = syncCursor;
    turn.headsCursor = headsCursor;
    turn.again ||= Boolean(more);
    await writer.commit({ syncCursor, ...settled });
  }

  /** @param {Turn} turn @param {number} syncCursor */
  async #ask(turn, syncCursor) {
    const { model, session } = this.#parts;
    const hidden = model.ledgers.size > 0; // it has to hear of what another device hid
    const changes = await session.ask("changes", { syncCursor, headsCursor: turn.headsCursor, hidden });
    if (turn !== this.#turn) throw disconnected();
    session.identify(changes.userId);
    const conversations = [...changes.conversations];
    for (let { cursor } = changes; cursor; ) {
      const page = await session.ask("conversations", { cursor, hidden });
      conversations.push(...page.conversations);
      cursor = page.cursor;
    }
    return { ...changes, conversations };
  }
}
