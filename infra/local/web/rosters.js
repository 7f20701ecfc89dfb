// The members of the conversations that are looked at, read page by page and kept until an event says
// that they changed.

const TRIES = 3;

export class Rosters {
  #request;
  #onChange;
  #known = new Map(); // conversationId → {members, stale, reading}

  constructor({ request, onChange }) {
    this.#request = request;
    this.#onChange = onChange;
  }

  /** The members, [{userId, role, joinSeq, joinedAt}] ordered by userId, or null while they are unknown. */
  of(conversationId) {
    return this.#known.get(conversationId)?.members ?? null;
  }

  /** They changed: what is known is shown until the next read. */
  invalidate(conversationId) {
    const roster = this.#known.get(conversationId);
    if (roster) roster.stale = true;
  }

  /** They are not ours to know any more. */
  forget(conversationId) {
    this.#known.delete(conversationId);
  }

  /** Reads them if they are not known as they are now. Rejects with the request's error. */
  async refresh(conversationId) {
    if (!this.#known.has(conversationId)) this.#known.set(conversationId, { members: null, stale: true, reading: null });
    const roster = this.#known.get(conversationId);
    while (roster.stale) {
      roster.reading ??= this.#read(conversationId, roster).finally(() => (roster.reading = null));
      await roster.reading;
    }
  }

  async #read(conversationId, roster) {
    roster.stale = false;
    try {
      roster.members = await this.#pages(conversationId);
    } catch (error) {
      roster.stale = true;
      throw error;
    }
    if (this.#known.get(conversationId) === roster) this.#onChange();
  }

  // Pages of different versions do not make one roster. If it never stops changing, the last is shown.
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
