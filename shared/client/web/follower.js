// What a tab does while another one leads: it keeps a copy of what the leader knows, and notices when the leader does
// not answer any more.

/**
 * @import { Channel, ChannelMessage } from "./channel.js"
 * @import { Clock, ConversationKey, Delta, Picture } from "./types.js"
 */

export const FOLLOWER_TIMING = Object.freeze({
  beatMs: 2_000, // how often a visible tab asks whether any tab leads ...
  silentBeats: 4, // ... and after how many unanswered questions it takes the lead itself
});

/**
 * @typedef {object} FollowerHooks
 * @property {(picture: Picture) => void} picture
 * @property {(delta: Delta) => void} delta
 * @property {(id: number, answer: {result?: any, error?: any}) => void} answer
 * @property {() => void} led there is another leader
 * @property {() => void} silent the leader does not answer
 */

export class Follower {
  #channel;
  #hooks;
  #clock;
  #timing;
  #isVisible;
  #term;
  /** @type {number | null} The number of the last delta that we hold; null before the picture. */
  #n = null;
  /** @type {ChannelMessage[]} Deltas that came before the picture. */
  #early = [];
  #beats = 0;
  /** @type {any} */
  #timer = null;
  /** @type {ConversationKey | null} */
  #key;

  /**
   * @param {object} parts
   * @param {Channel} parts.channel
   * @param {number} parts.term leaders of an earlier one are ignored
   * @param {ConversationKey | null} parts.key what is on screen
   * @param {() => boolean} parts.isVisible
   * @param {Clock} parts.clock
   * @param {Record<keyof typeof FOLLOWER_TIMING, number>} parts.timing
   * @param {FollowerHooks} parts.hooks
   */
  constructor({ channel, term, key, isVisible, clock, timing, hooks }) {
    this.#channel = channel;
    this.#term = term;
    this.#key = key;
    this.#isVisible = isVisible;
    this.#clock = clock;
    this.#timing = timing;
    this.#hooks = hooks;
    this.#hello();
    this.#beat();
  }

  /** The highest term of a leader that was heard of. */
  get term() {
    return this.#term;
  }

  close() {
    this.#clock.clearTimeout(this.#timer);
  }

  /** @param {ConversationKey | null} key */
  show(key) {
    this.#key = key;
    this.#channel.post("show", { key });
  }

  /**
   * Asks the leader to do something; the hook answer receives its answer. A new leader has to be asked again.
   * @param {number} id @param {string} method @param {any[]} args
   */
  call(id, method, args) {
    this.#channel.post("call", { id, method, args });
  }

  /** @param {ChannelMessage} message */
  receive(message) {
    const { type, term, n } = message;
    if (typeof term !== "number" || term < this.#term) return; // of a follower, or of a tab that led before
    this.#beats = 0;
    if (term > this.#term || (type === "lead" && this.#n === null)) this.#follow(term);
    if (type === "picture") this.#take(message);
    else if (type === "delta") this.#hear(message);
    else if (type === "answer") this.#hooks.answer(message.id, { result: message.result, error: message.error });
    else if (type === "pong" && n !== this.#n) this.#hello(); // such as after a pause
  }

  /** @param {number} term */
  #follow(term) {
    this.#term = term;
    this.#hello();
    this.#hooks.led();
  }

  #hello() {
    this.#n = null;
    this.#early = [];
    this.#channel.post("hello", { key: this.#key });
  }

  /** @param {ChannelMessage} message */
  #take({ n, picture }) {
    this.#n = n;
    this.#hooks.picture(picture);
    for (const message of this.#early.splice(0)) this.#hear(message);
  }

  /** @param {ChannelMessage} message */
  #hear(message) {
    if (this.#n === null) {
      this.#early.push(message);
      return;
    }
    if (message.n <= this.#n) return;
    if (message.n > this.#n + 1) {
      this.#hello(); // something was missed
      return;
    }
    this.#n = message.n;
    this.#hooks.delta(message.delta);
  }

  // It counts beats instead of time: after the whole machine has slept only one has passed, and the leader has slept
  // too.
  #beat() {
    this.#timer = this.#clock.setTimeout(() => {
      if (this.#isVisible()) {
        if (++this.#beats > this.#timing.silentBeats) {
          this.#beats = 0;
          this.#hooks.silent();
        } else this.#channel.post("ping");
      }
      this.#beat();
    }, this.#timing.beatMs);
  }
}
