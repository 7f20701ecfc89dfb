// A few places for what goes on at once.

export const SLOW_MS = 3_000; // a change or a position that takes longer is not counted among these

export class Places {
  #free;
  /** @type {(() => void)[]} */
  #queue = [];

  /** @param {number} free */
  constructor(free) {
    this.#free = free;
  }

  /**
   * Does work once there is a place for it, which is first come, first served. The place is free when work ends, or
   * calls what it is given.
   * @param {(leave: () => void) => Promise<void>} work
   */
  async take(work) {
    if (this.#free > 0) this.#free--;
    else await new Promise((resolve) => this.#queue.push(() => resolve(undefined)));
    let isLeft = false;
    const leave = () => {
      if (isLeft) return;
      isLeft = true;
      const next = this.#queue.shift();
      if (next) next();
      else this.#free++;
    };
    try {
      await work(leave);
    } finally {
      leave();
    }
  }
}
