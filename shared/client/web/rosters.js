// The members of the groups that were on screen, read page by page and kept until an event says that they changed.

/**
 * @import { Parts } from "./engine.js"
 * @import { Member } from "./types.js"
 */

const TRIES = 3;

export class Rosters {
  #parts;
  #members; // by conversationId and ordered by userId
  /** @type {Map<string, {stale: boolean, reading: Promise<void> | null}>} */
  #known = new Map();

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
    this.#members = parts.model.rosters;
  }

  /**
   * The members changed: what is known is shown until the next read.
   * @param {string} conversationId
   */
  invalidate(conversationId) {
    const roster = this.#known.get(conversationId);
    if (roster) roster.stale = true;
  }

  /**
   * The members are not ours to know any more.
   * @param {string} conversationId
   */
  forget(conversationId) {
    this.#known.delete(conversationId);
    this.#members.delete(conversationId);
  }

  /**
   * Reads the members if they are not known as they are now. Rejects with the request's error.
   * @param {string} conversationId
   */
  async refresh(conversationId) {
    const roster = this.#known.get(conversationId) ?? { stale: true, reading: null };
    this.#known.set(conversationId, roster);
    while (roster.stale) {
      roster.reading ??= this.#read(conversationId, roster).finally(() => (roster.reading = null));
      await roster.reading;
    }
  }

  /** @param {string} conversationId @param {{stale: boolean}} roster */
  async #read(conversationId, roster) {
    roster.stale = false;
    try {
      const members = await this.#pages(conversationId);
      if (this.#known.get(conversationId) !== roster) return;
      this.#members.set(conversationId, members);
    } catch (error) {
      roster.stale = true;
      throw error;
    }
    this.#parts.changed();
  }

  // Pages of different versions do not make one roster. If it never stops changing, the last try is shown.
  /** @param {string} conversationId @returns {Promise<Member[]>} */
  async #pages(conversationId) {
    for (let tries = 1; ; tries++) {
      const members = [];
      const versions = new Set();
      let cursor = "";
      do {
        const page = await this.#parts.session.ask("members", { conversationId, ...(cursor && { cursor }) });
        members.push(...page.members);
        versions.add(page.membersVersion);
        cursor = page.cursor ?? "";
      } while (cursor);
      if (versions.size === 1 || tries === TRIES) return members;
    }
  }
}
