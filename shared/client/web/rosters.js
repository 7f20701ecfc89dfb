// The members of the conversations that are looked at, read page by page and kept until an event says
// that they changed.

/** @import { Member } from "./types.js" */

const TRIES = 3;

export class Rosters {
  #request;
  #onChange;
  #members;
  /** @type {Map<string, {stale: boolean, reading: Promise<void> | null}>} */
  #known = new Map();

  /**
   * members, by conversationId and ordered by userId, are shared with who shows them.
   * @param {object} parts
   * @param {Map<string, Member[]>} parts.members
   * @param {(action: string, fields: object) => Promise<any>} parts.request
   * @param {() => void} parts.onChange
   */
  constructor({ members, request, onChange }) {
    this.#members = members;
    this.#request = request;
    this.#onChange = onChange;
  }

  /**
   * They changed: what is known is shown until the next read.
   * @param {string} conversationId
   */
  invalidate(conversationId) {
    const roster = this.#known.get(conversationId);
    if (roster) roster.stale = true;
  }

  /**
   * They are not ours to know any more.
   * @param {string} conversationId
   */
  forget(conversationId) {
    this.#known.delete(conversationId);
    this.#members.delete(conversationId);
  }

  /**
   * Reads them if they are not known as they are now. Rejects with the request's error.
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

  /**
   * @param {string} conversationId
   * @param {{stale: boolean}} roster
   */
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
    this.#onChange();
  }

  // Pages of different versions do not make one roster. If it never stops changing, the last is shown.
  /**
   * @param {string} conversationId
   * @returns {Promise<Member[]>}
   */
  async #pages(conversationId) {
    for (let tries = 1; ; tries++) {
      const members = [];
      const versions = new Set();
      let cursor = "";
      do {
        const page = await this.#request("members", { conversationId, ...(cursor && { cursor }) });
        members.push(...page.members);
        versions.add(page.membersVersion);
        cursor = page.cursor ?? "";
      } while (cursor);
      if (versions.size === 1 || tries === TRIES) return members;
    }
  }
}
