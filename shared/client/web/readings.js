// What programs read of conversations, kept until it changes. It also changes when the time to edit or recall a message
// is over.

import { listed, rowsIn, summaryOf } from "./conversations.js";
import { nextEnd } from "./rights.js";
import { Views } from "./views.js";

/**
 * @import { Role } from "./role.js"
 * @import { Clock, Conversation, ConversationKey, Member, Row } from "./types.js"
 */

const MAX_TIMEOUT_MS = 2 ** 31 - 1; // a longer one would end at once

/** For how many lists of rows, and how many conversations, reading returns the same objects until they change. */
export const MAX_VIEWS = 1_000;

export class Readings {
  #role;
  #clock;
  #onChange;
  #version = 0; // grows with each change
  #rows = new Views(MAX_VIEWS);
  #summaries = new Views(MAX_VIEWS);
  /** When the first of the rows that were read cannot be changed any more. @type {{at: number, timer: any}} */
  #windowEnd = { at: Infinity, timer: null };

  /** @param {Role} role @param {Clock} clock @param {() => void} onChange called when such a time is over */
  constructor(role, clock, onChange) {
    this.#role = role;
    this.#clock = clock;
    this.#onChange = onChange;
  }

  /** What the server's clock says, as far as is known, in ms since 1970. */
  now() {
    return this.#clock.now() - this.#role.model.status.ahead;
  }

  /** Something may have changed: all is read anew. */
  changed() {
    if (this.#role.hasEnded) this.#clock.clearTimeout(this.#windowEnd.timer);
    this.#version++;
  }

  /** @returns {readonly Conversation[]} most recent first */
  conversations() {
    const { model } = this.#role;
    const byTime = (/** @type {Conversation} */ a, /** @type {Conversation} */ b) => b.time - a.time;
    const seen = [...model.ledgers.values()].reduce((sum, { maxSeenSeq }) => sum + maxSeenSeq, 0);
    return this.#rows.get("", `${this.#version} ${seen}`, () => listed(model).map((key) => this.conversation(key)).sort(byTime));
  }

  /** @param {ConversationKey} key a current one @returns {Conversation} */
  conversation(key) {
    const { model } = this.#role;
    const seen = model.ledgers.get(key)?.maxSeenSeq ?? 0;
    return this.#summaries.get(key, `${this.#version} ${seen}`, () => {
      const summary = summaryOf(model, key, this.now());
      if (summary.last) this.#awaitWindowEnd([summary.last]);
      return summary;
    });
  }

  /** @param {ConversationKey} key a current one @param {number} limit @returns {readonly Row[]} */
  messages(key, limit) {
    return this.#rows.get(`${limit} ${key}`, `${this.#version}`, () => {
      const rows = rowsIn(this.#role.model, key, limit, this.now());
      this.#awaitWindowEnd(rows);
      return rows;
    });
  }

  /** @param {ConversationKey} key a current one @returns {readonly Member[] | null} */
  members(key) {
    return this.#rows.get(`members ${key}`, `${this.#version}`, () => this.#role.model.members(key));
  }

  /** @param {readonly Row[]} rows */
  #awaitWindowEnd(rows) {
    const now = this.now();
    const at = nextEnd(rows, this.#role.model.status.windows, now);
    if (at >= this.#windowEnd.at || this.#role.hasEnded) return;
    this.#clock.clearTimeout(this.#windowEnd.timer);
    const ended = () => {
      this.#windowEnd = { at: Infinity, timer: null };
      this.#onChange();
    };
    this.#windowEnd = { at, timer: this.#clock.setTimeout(ended, Math.min(at - now, MAX_TIMEOUT_MS)) };
  }
}
