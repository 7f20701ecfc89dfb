// This tab's role among the tabs of its device. One leads: it has the connection and writes what arrives to the store.
// The others follow: they hold a copy of what it knows. What the user asks for goes into the outbox, which all share,
// and the tab that leads sends it.

import { Calls } from "./calls.js";
import { Channel } from "./channel.js";
import { Engine } from "./engine.js";
import { FOLLOWER_TIMING, Follower } from "./follower.js";
import { Leader } from "./leader.js";
import { Model } from "./model.js";
import { watchNetwork } from "./network.js";
import { MemoryStore } from "./store.js";
import { Election, Presence, browserTabs } from "./tabs.js";
import { unlessFenced, wipe } from "./wipe.js";

/**
 * @import { ChannelMessage } from "./channel.js"
 * @import { Options } from "./client.js"
 * @import { Clock, ConnectionState, ConversationKey, Saved, Store } from "./types.js"
 */

/** How long a tab waits for the one that leads, in ms. */
const TAB_TIMING = Object.freeze({
  ...FOLLOWER_TIMING,
  helloMs: 1_000, // for the leader's picture, before the store is read instead
  callMs: 15_000, // for an answer for which the leader has to ask the server
});

/** @typedef {Partial<Record<keyof typeof TAB_TIMING, number>>} TabTiming in ms */

/**
 * @typedef {object} RoleHooks
 * @property {() => void} changed what is shown may have changed
 * @property {(conversationId: string, seqs: number[]) => void} news these messages of others have come
 */

const ENDINGS = {
  closed: { code: "CLOSED", message: "the client is closed" },
  outdated: { code: "OUTDATED", message: "a newer version of this page is open in another tab; reload this one" },
};

export class Role {
  /** What this tab knows; another one whenever its role changes. @type {Model} */
  model;
  /** @type {Store} */
  store;
  /** @type {Engine | null} if this tab leads */
  engine = null;
  /** @type {Follower | null} if another one may */
  follower = null;
  calls;
  #options;
  #userId;
  #tabs;
  #clock;
  #log;
  #timing;
  #hooks;
  /** @type {Error | null} */
  #storeError;
  /** @type {Error | null} The storage error of the tab that leads, as shown here. */
  #toldError = null;
  #tabId = randomId();
  /** @type {Election | null} */
  #election = null;
  /** @type {Channel | null} */
  #channel = null;
  /** @type {Leader | null} */
  #leader = null;
  /** @type {Presence | null} */
  #presence = null;
  #unwatch = () => {};
  #unwatchNetwork = () => {};
  #turn = 0; // grows whenever this tab's role changes; what an earlier one began is void
  #term = 0; // the highest that was heard of
  #filled = false; // whether the model holds anything yet
  /** @type {"" | "closed" | "outdated"} Why this tab does not take part any more. */
  #ended = "";
  /** @type {ConversationKey | null} */
  #shown = null;
  /** @type {ConversationKey[]} */
  #shownElsewhere = [];
  /** @type {() => void} */
  #ready = () => {};

  /**
   * Makes a role that does nothing before start.
   * @param {Options & {store: Store, storeError?: Error | null, clock: Clock, log: (message: string) => void}} options
   * @param {RoleHooks} hooks
   */
  constructor(options, hooks) {
    const { userId, store, storeError = null, tabs = browserTabs(), clock, log, timing = {} } = options;
    this.#options = options;
    this.#userId = userId;
    this.store = store;
    this.#storeError = storeError;
    this.#tabs = tabs;
    this.#clock = clock;
    this.#log = log;
    this.#timing = { ...TAB_TIMING, ...timing };
    this.#hooks = hooks;
    this.model = new Model(userId);
    this.calls = new Calls(this, { clock, log, callMs: this.#timing.callMs });
  }

  /** @returns {ConnectionState} */
  get state() {
    return this.#ended ? "offline" : this.model.status.state;
  }

  get detail() {
    return this.#ended || this.model.status.detail;
  }

  get storeError() {
    const { storeError } = this.model.status;
    if (!storeError) return this.#storeError;
    const { name, message } = storeError;
    if (this.#toldError?.message !== message) this.#toldError = Object.assign(new Error(message), { name });
    return this.#toldError;
  }

  get leads() {
    return this.engine !== null;
  }

  /** Whether there are no other tabs that may lead. */
  get isAlone() {
    return this.#tabs === null;
  }

  get hasEnded() {
    return this.#ended !== "";
  }

  /** Begins, and resolves once there is something to show. */
  async start() {
    const { network = watchNetwork } = this.#options;
    this.#unwatchNetwork = network((quietMs) => this.calls.doubtConnection(quietMs));
    if (!this.#tabs) return this.#lead();
    const ready = new Promise((/** @type {(value?: undefined) => void} */ resolve) => (this.#ready = resolve));
    this.#unwatch = this.#tabs.watch({ suspend: () => this.#suspend(), resume: () => void this.#join() });
    void this.#join();
    const timer = this.#clock.setTimeout(() => void this.#fillFromStore().then(() => this.#ready()), this.#timing.helloMs);
    await ready;
    this.#clock.clearTimeout(timer);
  }

  /**
   * Ends this tab's part. With forget, ends that of all tabs, and wipes what is stored.
   * @param {boolean} forget
   */
  async close(forget) {
    if (this.#ended === "closed") return;
    if (forget) this.#channel?.post("forget");
    try {
      if (forget) await this.#forget();
      else await this.#quit();
      if (forget) await wipe(/** @type {Store} */ (this.#options.store), Math.max(this.#clock.now(), this.#term));
    } finally {
      this.store.close();
    }
  }

  /** @param {boolean} offline */
  setOffline(offline) {
    const replaced = !this.#tabs && (!this.engine || this.detail === "replaced"); // another tab may have written since
    if (!offline && replaced && !this.#ended) void this.#lead();
    else this.calls.do("setOffline", offline);
  }

  /** @param {ConversationKey | null} key */
  show(key) {
    this.#shown = key;
    this.follower?.show(key);
    this.#attend();
  }

  // ---- who leads ----

  // Takes part: follows the tab that leads, and waits to be the next.
  async #join() {
    const tabs = this.#tabs;
    if (!tabs || this.#ended || this.#channel) return;
    const turn = ++this.#turn;
    this.#channel = new Channel({
      open: tabs.channel,
      name: this.#name,
      tabId: this.#tabId,
      log: this.#log,
      hooks: {
        message: (message) => this.#receive(message),
        newer: () => this.#end("outdated"),
        older: () => this.#leader?.announce(),
      },
    });
    this.#election = new Election({
      locks: tabs.locks,
      name: this.#name,
      hooks: { won: () => void this.#lead(), lost: () => this.#stepDown(), failed: (error) => this.#alone(error) },
    });
    this.#presence = new Presence({ locks: tabs.locks, name: this.#name, tabId: this.#tabId });
    await this.#presence.show();
    if (turn !== this.#turn) return;
    this.#follow();
    this.#election.join();
  }

  // Ends the part of a tab that is about to be closed, frozen or put aside: it could not answer the others. It has to
  // be synchronous.
  #suspend() {
    this.#turn++;
    this.#channel?.post("bye");
    this.#retire();
    this.#election?.leave();
    this.#presence?.end();
    this.#channel?.close();
    this.#election = this.#channel = this.#presence = null;
  }

  /** @param {"closed" | "outdated"} why */
  #end(why) {
    if (this.#ended) return;
    this.#unwatch();
    this.#unwatchNetwork();
    this.#suspend();
    this.#ended = why;
    this.calls.end(ENDINGS[why]);
    this.#ready();
    this.changed();
  }

  async #quit() {
    const written = this.engine?.settled();
    this.#end("closed");
    await written;
  }

  // Ends, and takes back what this tab may have written since another one wiped the store, as it may have led by then.
  // What a new sign-in has stored meanwhile stays.
  async #forget() {
    const term = this.engine ? this.#term : null;
    const outboxDelete = [...this.model.outbox.keys()];
    this.model = new Model(this.#userId);
    await this.#quit();
    await this.store.commit({ outboxDelete });
    if (term !== null) await this.store.commit({ forget: true }, term).catch(unlessFenced);
  }

  /** Ends leading or following. */
  #retire() {
    this.engine?.halt();
    this.#leader?.close();
    this.follower?.close();
    if (this.follower) this.#term = Math.max(this.#term, this.follower.term);
    this.engine = this.#leader = this.follower = null;
  }

  async #lead() {
    const turn = ++this.#turn;
    this.#retire();
    const { term, saved } = await this.#claim();
    if (turn !== this.#turn) return;
    const earlier = this.model;
    const { state, windows, ahead, storeError } = earlier.status;
    const away = state === "offline" && this.#tabs !== null;
    this.#term = term;
    const model = new Model(this.#userId);
    model.load(saved);
    model.inherit(earlier);
    model.status = { state: away ? "offline" : "connecting", detail: away ? earlier.status.detail : "", windows, ahead, inDoubt: model.status.inDoubt, storeError: this.store.shared ? null : storeError };
    this.model = model;
    this.#filled = true;
    /** @type {Engine} */
    const engine = new Engine({
      ...this.#options,
      WebSocket: this.#options.WebSocket ?? globalThis.WebSocket,
      log: this.#log,
      store: this.store,
      model,
      term,
      hooks: {
        changed: () => {
          this.#leader?.changed();
          this.changed();
        },
        kept: (change) => this.#leader?.kept(change),
        news: (conversationId, seqs) => {
          this.#leader?.news(conversationId, seqs);
          this.#hooks.news(conversationId, seqs);
        },
        fenced: () => engine === this.engine && this.#stepDown(),
      },
    });
    this.engine = engine;
    const channel = this.#channel;
    const presence = this.#presence;
    if (channel && presence) {
      this.#leader = new Leader({
        channel,
        term,
        model,
        log: this.#log,
        watch: (tabId, signal) => presence.awaitEnd(tabId, signal),
        hooks: {
          perform: (method, args) => engine.perform(method, args),
          settled: () => engine.settled(),
          show: (keys) => {
            this.#shownElsewhere = keys;
            this.#attend();
          },
          superseded: () => engine === this.engine && this.#stepDown(),
        },
      });
    }
    engine.start();
    this.#attend();
    this.calls.askAll();
    this.changed();
    this.#ready();
  }

  // Makes the store this tab's own, and returns what it holds. Without a store that works, all is held in memory.
  /** @returns {Promise<{term: number, saved: Saved}>} */
  async #claim() {
    const atLeast = Math.max(this.#clock.now(), this.#term);
    try {
      const term = await this.store.claim(atLeast);
      const saved = await this.store.load();
      if (!this.#filled || this.store.shared) return { term, saved };
      const known = this.model.dump();
      await this.store.commit({ forget: true, ...known }, term);
      return { term, saved: known };
    } catch (thrown) {
      this.#storeError = /** @type {Error} */ (thrown);
      this.#log(`could not read the store: ${this.#storeError.message}`);
      this.store = new MemoryStore();
      return { term: await this.store.claim(atLeast), saved: this.model.dump() };
    }
  }

  #follow() {
    this.#retire();
    const channel = this.#channel;
    const tabs = this.#tabs;
    if (!channel || !tabs) return;
    this.follower = new Follower({
      channel,
      term: this.#term,
      key: this.#shown,
      isVisible: tabs.isVisible,
      clock: this.#clock,
      timing: this.#timing,
      hooks: {
        picture: (picture) => this.#take(Model.of(this.#userId, picture)),
        delta: (delta) => {
          this.model.apply(delta);
          this.calls.overlay();
          this.changed();
          for (const [conversationId, seqs] of delta.news) this.#hooks.news(conversationId, seqs);
        },
        answer: (id, { result, error }) => (error ? this.calls.reject(id, error) : this.calls.resolve(id, result)),
        led: () => this.calls.askAll(),
        silent: () => {
          this.#log("the tab that leads does not answer: this one takes over");
          this.#election?.steal();
        },
      },
    });
    this.calls.askAll();
  }

  // Another tab leads now: by force, or because this one was away for too long.
  #stepDown() {
    this.#turn++; // also if it was just about to lead
    this.#retire();
    const { state, detail } = this.model.status;
    const wanted = this.#tabs ? state !== "offline" || detail === "replaced" : false; // that other tab replaced us
    this.model.status = { ...this.model.status, state: wanted ? "connecting" : "offline", detail: this.#tabs ? (wanted ? "" : detail) : "replaced" };
    if (this.#tabs) {
      this.#follow();
      this.#election?.join();
    }
    this.changed();
  }

  // The browser refuses locks to this page.
  /** @param {Error} error */
  #alone(error) {
    this.#log(`tabs cannot share a connection here: ${error.message}`);
    this.#unwatch();
    this.#suspend();
    this.#tabs = null;
    void this.#lead();
  }

  /** @param {Model} model */
  #take(model) {
    this.model = model;
    this.#filled = true;
    this.calls.overlay();
    this.changed();
    this.#ready();
  }

  // A tab whose leader does not answer shows what is stored.
  async #fillFromStore() {
    try {
      const saved = await this.store.load();
      if (this.#filled) return;
      const model = new Model(this.#userId);
      model.load(saved);
      model.inherit(this.model);
      this.#take(model);
    } catch (error) {
      this.#log(`could not read the store: ${/** @type {Error} */ (error).message}`);
    }
  }

  /** @param {ChannelMessage} message */
  #receive(message) {
    if (message.type === "forget") {
      this.#forget()
        .catch((error) => this.#log(`could not wipe the store: ${error.message}`))
        .finally(() => this.store.close());
      return;
    }
    this.#leader?.receive(message);
    this.follower?.receive(message);
  }

  #attend() {
    this.engine?.show(new Set([...this.#shownElsewhere, ...(this.#shown === null ? [] : [this.#shown])]));
  }

  get #name() {
    return ["inorder", this.#options.url, this.#userId, this.#options.deviceId].map(encodeURIComponent).join("/");
  }

  changed() {
    this.#hooks.changed();
  }
}

function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
