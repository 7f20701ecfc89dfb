// What one device holds of one conversation: a gapless run of entries from baseSeq up to maxContiguousSeq, and a
// bounded buffer of entries that arrived early. Pure: no I/O, no time.

/** @import { LedgerEvent, Message } from "./types.js" */

const BUFFER_LIMIT = 500;

/** @typedef {{messages: Message[], nextSeq: number, committedMaxSeq: number, skipped?: number[] | null, firstSeq?: number}} SyncPage */

/** @typedef {Message & {event: LedgerEvent}} RevisionMessage one that recalls or edits another */

export class Ledger {
  /**
   * The shown entries in seq order, each as the held recalls and edits leave it.
   * @type {Message[]}
   */
  messages;
  /** How many pulls failed in a row. */
  failures = 0;
  /** How often it passed over a time in which the user was away. */
  absences = 0;
  /** The entries up to this seq were not asked for yet; 0 once all were. */
  baseSeq;
  /** Every seq above baseSeq up to this one is either in messages or known not to be ours to see. */
  maxContiguousSeq;
  /** The highest seq that we know to be committed. */
  maxSeenSeq;

  /** @type {Map<number, Message>} */
  #early = new Map();
  #earlyLimit;
  /** @type {Map<number, number[]>} By the seq that they recall or edit, held or not, the seqs of the held events. */
  #revisions = new Map();
  /** @type {Map<string, number>} By user, the seq of the last held event that erased what they had sent. */
  #erasures = new Map();

  /**
   * @param {string} conversationId
   * @param {{baseSeq?: number, maxContiguousSeq?: number, messages?: Message[], earlyLimit?: number}} [held]
   */
  constructor(conversationId, { baseSeq = 0, maxContiguousSeq = 0, messages = [], earlyLimit = BUFFER_LIMIT } = {}) {
    this.conversationId = conversationId;
    this.baseSeq = baseSeq;
    this.maxContiguousSeq = maxContiguousSeq;
    this.maxSeenSeq = maxContiguousSeq;
    this.#earlyLimit = earlyLimit;
    this.messages = bySeq(messages);
    for (const message of this.messages) this.#note(message);
  }

  /** Whether something committed has not arrived yet: a pull is due. */
  get hasGap() {
    return this.maxSeenSeq > this.maxContiguousSeq;
  }

  /** How many entries wait for an earlier one. */
  get earlyCount() {
    return this.#early.size;
  }

  /**
   * The entry with this seq, if it is held and shown.
   * @param {number} seq @returns {Message | undefined}
   */
  get(seq) {
    return this.messages[this.#indexOf(seq)];
  }

  /**
   * Counts the seqs above after and up to through whose entries are never unread to this user: in order, early, or
   * among sent.
   * @param {string} userId @param {number} after @param {number} through @param {number[]} sent
   */
  countBy(userId, after, through, sent) {
    let count = 0;
    for (let i = this.messages.length - 1; i >= 0 && this.messages[i].seq > after; i--) {
      if (isNoNews(this.messages[i], userId) && this.messages[i].seq <= through) count++;
    }
    const early = [...this.#early.values()].filter((message) => isNoNews(message, userId)).map(({ seq }) => seq);
    for (const seq of new Set([...early, ...sent])) {
      if (seq > Math.max(after, this.maxContiguousSeq) && seq <= through) count++;
    }
    return count;
  }

  /**
   * Whether an entry in order, above after, is news to this user: not an own one, nor one that only takes content away.
   * One that was not asked for may be.
   * @param {string} userId @param {number} after
   */
  newsFor(userId, after) {
    const last = this.messages.findLast((message) => message.seq <= after || !isNoNews(message, userId));
    return (last?.seq ?? this.baseSeq) > after;
  }

  /**
   * Notes that seq is committed.
   * @param {number} seq
   */
  see(seq) {
    if (Number.isSafeInteger(seq) && seq > this.maxSeenSeq) this.maxSeenSeq = seq;
  }

  /**
   * Makes a ledger that holds nothing begin after seq; history brings what is before.
   * @param {number} seq
   */
  startAfter(seq) {
    if (this.maxContiguousSeq > 0 || seq <= 0) return;
    this.baseSeq = seq;
    this.maxContiguousSeq = seq;
    this.see(seq);
    this.#forgetEarly();
  }

  /**
   * Takes pushed entries, in any order and with repeats. Returns the entries that are new or changed in messages.
   * @param {Message[]} messages @param {number} committedMaxSeq
   */
  push(messages, committedMaxSeq) {
    this.see(committedMaxSeq);
    for (const message of messages) {
      this.see(message.seq);
      if (message.seq > this.maxContiguousSeq) this.#early.set(message.seq, message);
    }
    const changed = this.#admit(this.#drain());
    this.#trim();
    return changed;
  }

  /**
   * Takes a sync page that was asked for from maxContiguousSeq, or from a value it had before. The page is the
   * authority on its range: a seq up to nextSeq that it lacks is not ours to see, whatever a push held. Returns the
   * entries that are new or changed in messages.
   * @param {SyncPage} page
   */
  page({ messages, nextSeq, committedMaxSeq }) {
    const from = this.maxContiguousSeq;
    const fresh = bySeq(messages).filter(({ seq }) => seq > from && seq <= nextSeq);
    this.maxContiguousSeq = Math.max(from, nextSeq);
    this.#forgetEarly();
    this.see(nextSeq);
    this.see(committedMaxSeq);
    return this.#admit(fresh.concat(this.#drain()));
  }

  /**
   * Takes a history page that was asked for with beforeSeq. Returns the entries that are new or changed in messages;
   * none if the page does not end where this ledger begins (any more).
   * @param {{messages: Message[], nextBeforeSeq: number, hasMore: boolean}} page @param {number} beforeSeq
   */
  earlier({ messages, nextBeforeSeq, hasMore }, beforeSeq) {
    if (beforeSeq !== this.baseSeq + 1) return [];
    const fresh = bySeq(messages).filter(({ seq }) => seq < beforeSeq);
    this.baseSeq = hasMore ? Math.min(this.baseSeq, nextBeforeSeq - 1) : 0;
    this.messages.unshift(...fresh);
    return this.#revised(fresh);
  }

  /**
   * Takes a history page of what is held already. One that the server read before an event that is held by now does not
   * undo it. Returns the entries that are changed in messages.
   * @param {Message[]} messages
   */
  again(messages) {
    const changed = new Set();
    for (const message of messages) {
      const held = this.get(message.seq);
      if (!held || isSame(held, message) || isOlder(message, held)) continue;
      this.#replace(message, changed);
      this.#erase(message.seq, changed);
    }
    return [...changed].map((seq) => /** @type {Message} */ (this.get(seq)));
  }

  /**
   * The server has answered that there is no more, to a pull that began when maxSeenSeq was seenWhenAsked. A higher seq
   * that we heard of before was not for us (such as the last one of a group that we left), and waiting for it would
   * never end. Entries that came early prove the opposite and are kept.
   * @param {number} seenWhenAsked
   */
  settle(seenWhenAsked) {
    if (this.maxSeenSeq === seenWhenAsked && this.#early.size === 0) this.maxSeenSeq = this.maxContiguousSeq;
  }

  /**
   * Takes what another tab holds; messages replace those with the same seq.
   * @param {{baseSeq: number, maxContiguousSeq: number, messages: Message[]}} other
   */
  adopt({ baseSeq, maxContiguousSeq, messages }) {
    const fresh = [];
    for (const message of messages) {
      const index = this.#indexOf(message.seq);
      if (index >= 0) this.messages[index] = message;
      else fresh.push(message);
    }
    const inOrder = fresh.length === 0 || bySeq(fresh)[0].seq > (this.messages.at(-1)?.seq ?? 0);
    this.messages = inOrder ? this.messages.concat(bySeq(fresh)) : bySeq(this.messages.concat(fresh));
    this.baseSeq = baseSeq;
    this.maxContiguousSeq = maxContiguousSeq;
    this.see(maxContiguousSeq);
  }

  #drain() {
    const next = [];
    for (let message; (message = this.#early.get(this.maxContiguousSeq + 1)); next.push(message)) {
      this.#early.delete(message.seq);
      this.maxContiguousSeq = message.seq;
    }
    return next;
  }

  #forgetEarly() {
    for (const seq of this.#early.keys()) {
      if (seq <= this.maxContiguousSeq) this.#early.delete(seq);
    }
  }

  // The highest entries are dropped first: they could be shown last, and a pull brings them again.
  #trim() {
    const excess = this.#early.size - this.#earlyLimit;
    if (excess <= 0) return;
    for (const seq of [...this.#early.keys()].sort((a, b) => b - a).slice(0, excess)) this.#early.delete(seq);
  }

  /** @param {Message[]} fresh */
  #admit(fresh) {
    this.messages.push(...fresh);
    return this.#revised(fresh);
  }

  // Applies the fresh entries that are revisions or erasures, and those held ones that apply to fresh entries.
  /** @param {Message[]} fresh */
  #revised(fresh) {
    const changed = new Set(fresh.map(({ seq }) => seq));
    for (const message of fresh) this.#note(message);
    for (const message of fresh) this.#revise(targetOf(message) ?? message.seq, changed);
    for (const { seq } of fresh.some(({ event }) => event?.kind === "erase") ? [...this.messages] : fresh) this.#erase(seq, changed);
    return [...changed].map((seq) => /** @type {Message} */ (this.get(seq)));
  }

  /** @param {Message} message */
  #note(message) {
    const { event, seq } = message;
    if (event?.kind === "erase" && event.erased) this.#erasures.set(event.erased, Math.max(this.#erasures.get(event.erased) ?? 0, seq));
    const target = targetOf(message);
    if (target === null) return;
    const events = this.#revisions.get(target);
    if (events) events.push(seq);
    else this.#revisions.set(target, [seq]);
  }

  /** @param {number} seq @param {Set<number>} changed */
  #erase(seq, changed) {
    const message = /** @type {Message} */ (this.get(seq));
    if (seq < (this.#erasures.get(message.senderId ?? "") ?? 0)) this.#replace(erased(message), changed);
  }

  /** @param {number} seq @param {Set<number>} changed */
  #revise(seq, changed) {
    const events = (this.#revisions.get(seq) ?? []).map((event) => /** @type {RevisionMessage} */ (this.get(event)));
    const target = this.get(seq);
    if (target) this.#replace(events.reduce(revise, target), changed);
    // What was recalled is gone from the events of its edits too.
    const recalled = new Set(events.filter(({ event }) => event.kind === "recall").map(({ event }) => event.targetMessageId));
    for (const edit of events) {
      if (edit.event.kind === "edit" && recalled.has(edit.event.targetMessageId)) this.#replace(withoutContent(edit), changed);
    }
  }

  /** @param {Message} message @param {Set<number>} changed */
  #replace(message, changed) {
    const index = this.#indexOf(message.seq);
    if (this.messages[index] === message) return;
    this.messages[index] = message;
    changed.add(message.seq);
  }

  /** @param {number} seq */
  #indexOf(seq) {
    let low = 0;
    let high = this.messages.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.messages[middle].seq === seq) return middle;
      if (this.messages[middle].seq < seq) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }
}

/**
 * Whether a sync page accounts for each seq after the one it was asked from, up to its nextSeq. A page that does not
 * cannot be believed: what it leaves out would be lost for ever.
 * @param {SyncPage} page @param {number} afterSeq
 */
export function accountsForAll({ messages, nextSeq, skipped, firstSeq = 0 }, afterSeq) {
  const told = new Set(messages.map(({ seq }) => seq).concat(skipped ?? []));
  for (let seq = Math.max(afterSeq + 1, firstSeq); seq <= nextSeq; seq++) {
    if (!told.has(seq)) return false;
  }
  return true;
}

/**
 * Whether an entry shows in what it does to others, not as a row of its own.
 * @param {Message} message
 */
export function isRevision(message) {
  return targetOf(message) !== null || message.event?.kind === "erase";
}

/** @param {Message} message */
function targetOf({ event }) {
  return event?.kind === "recall" || event?.kind === "edit" ? (event.targetSeq ?? null) : null;
}

// The target as the event leaves it. It may already carry the revision, because sync and history return entries as they
// are now: versions decide, and a recall is final. If an edit has lost its content, the message was recalled since. If
// its content is withheld, this user was away and it changes nothing.
/** @param {Message} target @param {RevisionMessage} revision @returns {Message} */
function revise(target, { event, status, withheld, text, data }) {
  if (event.targetMessageId && event.targetMessageId !== target.messageId) return target;
  const { version = 0 } = event;
  const newer = version > target.version;
  if (event.kind === "recall") return newer ? { ...withoutContent(target), version } : withoutContent(target);
  if (status === "recalled") return withoutContent(target);
  if (withheld) return target;
  return newer && target.status !== "recalled" ? { ...target, text, data, version } : target;
}

/** @param {Message} message @returns {Message} */
function withoutContent(message) {
  return message.status === "recalled" ? message : { ...message, status: "recalled", withheld: false, text: null, data: null };
}

// Whether an entry is as it was: a recall or an erasure would have changed one of these.
/** @param {Message} one @param {Message} other */
function isSame(one, other) {
  return ["status", "version", "senderDeviceId", "clientTime"].every((name) => {
    const key = /** @type {keyof Message} */ (name);
    return (one[key] ?? null) === (other[key] ?? null);
  });
}

// Whether an entry is as it was before what made it another one: edits count its versions, and a recall is final.
/** @param {Message} one @param {Message} other */
function isOlder(one, other) {
  return one.status !== "recalled" && (other.status === "recalled" || one.version < other.version);
}

// The message as the server leaves it once all that its sender has sent is erased.
/** @param {Message} message @returns {Message} */
function erased(message) {
  const { senderDeviceId, clientTime, ...rest } = message;
  const { text, data, event, version } = message;
  if (!text && !data && !senderDeviceId && !clientTime) return message;
  const isContent = !event || event.kind === "edit";
  return { ...rest, withheld: false, text: null, data: null, ...(isContent && { status: "recalled", version: version + 1 }) };
}

/**
 * Whether a message is never unread: one's own, or one that only takes content away.
 * @param {Message} message @param {string} userId
 */
function isNoNews(message, userId) {
  return message.senderId === userId || message.event?.kind === "erase";
}

/** @param {Message[]} messages */
function bySeq(messages) {
  return [...messages].sort((a, b) => a.seq - b.seq);
}
