// What programs read is the same object until it changes: they compare by identity (React calls it a bug if they
// cannot). It is frozen, because it is returned again.

/** What is kept of a reading; stamp says what it was made of. @typedef {{stamp: string, value: any}} Kept */

export class Views {
  /** @type {Map<string, Kept>} by name; the one that was not asked for for the longest time is first */
  #kept = new Map();
  #limit;

  /** @param {number} limit how many readings are kept; a dropped one is made of new objects the next time */
  constructor(limit) {
    this.#limit = limit;
  }

  /**
   * Returns what make returns. make is not called again while the stamp is the same, and parts that equal those of the
   * last value are the same objects.
   * @template T
   * @param {string} name @param {string} stamp @param {() => T} make @returns {T}
   */
  get(name, stamp, make) {
    const last = this.#kept.get(name);
    const value = last?.stamp === stamp ? last.value : frozen(reuse(last?.value, make()));
    this.#kept.delete(name);
    this.#kept.set(name, { stamp, value });
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > this.#limit) this.#kept.delete(oldest);
    return value;
  }
}

/**
 * Returns next, made of the parts of last that equal its own; last itself if all do.
 * @param {any} last @param {any} next @returns {any}
 */
function reuse(last, next) {
  if (isEqual(last, next)) return last;
  if (!isObject(last) || !isObject(next) || Array.isArray(last) !== Array.isArray(next)) return next;
  if (Array.isArray(next)) {
    const before = counterparts(last, next);
    return next.map((item, index) => reuse(before[index], item));
  }
  return Object.fromEntries(Object.entries(next).map(([name, value]) => [name, Object.hasOwn(last, name) ? reuse(last[name], value) : value]));
}

/**
 * Whether two values of JSON are equal.
 * @param {any} a @param {any} b @returns {boolean}
 */
function isEqual(a, b) {
  if (Object.is(a, b)) return true;
  if (!isObject(a) || !isObject(b) || Array.isArray(a) !== Array.isArray(b)) return false;
  let more = 0;
  for (const name in b) {
    if (!Object.hasOwn(a, name) || !isEqual(a[name], b[name])) return false;
    more++;
  }
  for (const _ in a) more--;
  return more === 0;
}

// The items of last, at the places of their counterparts in next: rows move up when one is added.
/** @param {any[]} last @param {any[]} next */
function counterparts(last, next) {
  const byIdentity = new Map(last.map((item, index) => [identityOf(item, index), item]));
  return next.map((item, index) => byIdentity.get(identityOf(item, index)));
}

/**
 * @param {any} item a row, a conversation, a member or anything else
 * @param {number} index
 */
function identityOf(item, index) {
  const { messageId, clientMsgId, key, userId } = item ?? {};
  return messageId ?? clientMsgId ?? key ?? userId ?? index;
}

/** @param {any} value */
function isObject(value) {
  return typeof value === "object" && value !== null;
}

/** @template T @param {T} value @returns {T} */
export function frozen(value) {
  if (!isObject(value) || Object.isFrozen(value)) return value;
  for (const part of Object.values(/** @type {object} */ (value))) frozen(part);
  return Object.freeze(value);
}
