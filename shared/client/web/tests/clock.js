// Time that passes only when a test says so.
export class VirtualClock {
  #now = 1_800_000_000_000;
  #setBack = 0;
  #timers = new Map();
  #nextId = 1;

  now = () => Math.floor(this.#now - this.#setBack);

  monotonic = () => this.#now;

  /** Sets the clock back, as a user may: now returns an earlier time. */
  setBack(ms) {
    this.#setBack += ms;
  }

  setTimeout = (fn, ms) => {
    const id = this.#nextId++;
    this.#timers.set(id, { id, at: this.#now + Math.max(0, ms), fn });
    return id;
  };

  clearTimeout = (id) => {
    this.#timers.delete(id);
  };

  /** How many timers are set. */
  get pending() {
    return this.#timers.size;
  }

  /** Lets ms pass: runs in order what is due, and at once everything that follows from it. */
  async advance(ms) {
    const end = this.#now + ms;
    await settled();
    for (let timer; (timer = this.#next()) && timer.at <= end; ) {
      this.#timers.delete(timer.id);
      this.#now = timer.at;
      timer.fn();
      await settled();
    }
    this.#now = end;
  }

  /** Lets time pass until condition() holds; fails after limitMs. */
  async until(condition, limitMs = 60_000, what = condition.toString()) {
    const end = this.#now + limitMs;
    await settled();
    while (!condition()) {
      const timer = this.#next();
      if (!timer || timer.at > end) throw new Error(`after ${limitMs} ms still not true: ${what}`);
      await this.advance(timer.at - this.#now);
    }
  }

  #next() {
    let next = null;
    for (const timer of this.#timers.values()) {
      if (!next || timer.at < next.at || (timer.at === next.at && timer.id < next.id)) next = timer;
    }
    return next;
  }
}

/** Waits until every promise that can settle without a timer has settled. */
export function settled() {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A repeatable source of numbers in [0, 1) (mulberry32). */
export function seededRandom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
