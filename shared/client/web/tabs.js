// Which of a device's tabs leads, and when a tab cannot run.

/** @import { Port } from "./channel.js" */

/**
 * What tabs need of the browser.
 * @typedef {object} Tabs
 * @property {Pick<LockManager, "request">} locks
 * @property {(name: string) => Port} channel
 * @property {() => boolean} isVisible
 * @property {(hooks: {suspend: () => void, resume: () => void}) => () => void} watch calls suspend when the tab is
 *   about to be frozen, put aside or closed, and resume when it is back; returns a function that ends that
 */

/**
 * The tabs of this browser, or null where they cannot work together: only secure contexts have navigator.locks.
 * @param {any} [scope] @returns {Tabs | null}
 */
export function browserTabs(scope = globalThis) {
  const { BroadcastChannel, addEventListener, document, navigator } = scope;
  if (!navigator?.locks || !BroadcastChannel || !addEventListener) return null;
  return {
    locks: navigator.locks,
    channel: (name) => new BroadcastChannel(name),
    isVisible: () => document?.visibilityState !== "hidden",
    watch: ({ suspend, resume }) => {
      /** @type {[EventTarget, string, (event: any) => void][]} */
      const listeners = [
        [scope, "pagehide", suspend], // closed, or put into the back/forward cache
        [scope, "pageshow", ({ persisted }) => persisted && resume()],
        ...(document ? /** @type {[EventTarget, string, () => void][]} */ ([[document, "freeze", suspend], [document, "resume", resume]]) : []),
      ];
      for (const [target, type, listener] of listeners) target.addEventListener(type, listener);
      return () => {
        for (const [target, type, listener] of listeners) target.removeEventListener(type, listener);
      };
    },
  };
}

/**
 * @typedef {object} ElectionHooks
 * @property {() => void} won
 * @property {() => void} lost another tab took the lead by force
 * @property {(error: Error) => void} failed the browser refuses locks to this page
 */

/** One lock, held by the tab that leads; the next in the queue has it when that tab ends, however it ends. */
export class Election {
  #locks;
  #name;
  #hooks;
  /** @type {{abort: AbortController, release: (() => void) | null} | null} */
  #place = null;

  /**
   * @param {object} parts
   * @param {Pick<LockManager, "request">} parts.locks
   * @param {string} parts.name
   * @param {ElectionHooks} parts.hooks
   */
  constructor({ locks, name, hooks }) {
    this.#locks = locks;
    this.#name = name;
    this.#hooks = hooks;
  }

  /** Takes a place in the queue. */
  join() {
    this.leave();
    this.#ask((abort) => ({ signal: abort.signal }));
  }

  /** Takes the lead from a tab that does not answer. */
  steal() {
    this.leave();
    this.#ask(() => ({ steal: true }));
  }

  /** Returns the lead, or the place in the queue. */
  leave() {
    const place = this.#place;
    this.#place = null;
    place?.release?.();
    place?.abort.abort();
  }

  /** @param {(abort: AbortController) => LockOptions} options */
  #ask(options) {
    /** @type {{abort: AbortController, release: (() => void) | null}} */
    const place = { abort: new AbortController(), release: null };
    this.#place = place;
    const granted = () => {
      if (place !== this.#place) return undefined;
      return new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
        place.release = resolve;
        this.#hooks.won();
      });
    };
    this.#locks.request(this.#name, options(place.abort), granted).catch((error) => {
      if (place !== this.#place) return; // we left
      this.#place = null;
      if (place.release) this.#hooks.lost();
      else this.#hooks.failed(error);
    });
  }
}

/** A lock that a tab holds as long as it takes part, so that the tab that leads notices when it is gone. */
export class Presence {
  #locks;
  #name;
  #tabId;
  /** @type {(() => void) | null} */
  #release = null;
  #hasEnded = false;

  /**
   * @param {object} parts
   * @param {Pick<LockManager, "request">} parts.locks
   * @param {string} parts.name the same in all tabs of a device
   * @param {string} parts.tabId
   */
  constructor({ locks, name, tabId }) {
    this.#locks = locks;
    this.#name = name;
    this.#tabId = tabId;
  }

  /** Resolves once the lock is held. */
  show() {
    return new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
      const held = () =>
        new Promise((/** @type {(value?: undefined) => void} */ release) => {
          resolve();
          if (this.#hasEnded) release();
          else this.#release = release;
        });
      this.#locks.request(this.#lockOf(this.#tabId), held).catch(() => resolve()); // the election tells what is wrong
    });
  }

  end() {
    this.#hasEnded = true;
    this.#release?.();
  }

  /**
   * Resolves when another tab has ended.
   * @param {string} tabId @param {AbortSignal} signal
   */
  async awaitEnd(tabId, signal) {
    await this.#locks.request(this.#lockOf(tabId), { signal }, () => undefined);
  }

  /** @param {string} tabId */
  #lockOf(tabId) {
    return `${this.#name}/${tabId}`;
  }
}
