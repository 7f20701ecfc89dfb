// This tab's role among the tabs of its device. One leads: it has the connection and writes what arrives to the
// store. The others follow: they hold a copy of what it knows. What the user asks for goes into the outbox, which
// all share, and the tab that leads sends it.

import { Calls } from "./calls.js";
import { Channel } from "./channel.js";
import { RequestError } from "./connection.js";
import { Engine } from "./engine.js";
import { raise } from "./facts.js";
import { FOLLOWER_TIMING, Follower } from "./follower.js";
import { Leader } from "./leader.js";
import { Model } from "./model.js";
import { watchNetwork } from "./network.js";
import { NOT_IN_FLIGHT, recordOf } from "./outbox.js";
import { FencedError, MemoryStore } from "./store.js";
import { Election, browserTabs } from "./tabs.js";

/**
 * @import { Call } from "./calls.js"
 * @import { ChannelMessage } from "./channel.js"
 * @import { Options } from "./client.js"
 * @import { Tabs } from "./tabs.js"
 * @import { Clock, ConnectionState, ConversationKey, Entry, Saved, Store } from "./types.js"
 */

/** How long a tab waits for the one that leads, in ms. */
const TAB_TIMING = Object.freeze({
  ...FOLLOWER_TIMING,
  helloMs: 1_000, // for what it knows, before the store is read instead
  callMs: 15_000, // for an answer that it has to ask the server for
});

/** @typedef {Partial<Record<keyof typeof TAB_TIMING, number>>} TabTiming in ms */

/**
 * @typedef {object} RoleHooks
 * @property {() => void} changed what is shown may have changed
 * @property {(conversationId: string, seqs: number[]) => void} news these messages of others have come
 */

const WIPE_TRIES = 5; // against tabs that claim the store meanwhile, each once

const ENDINGS = {
  closed: { code: "CLOSED", message: "the client is closed" },
  outdated: { code: "OUTDATED", message: "a newer version of this page is open in another tab; reload this one" },
};
const AWAY = { code: "DISCONNECTED", message: "not connected", retryable: true };

export class Role {
  #options;
  #userId;
  #store;
  #tabs;
  #clock;
  #log;
  #timing;
  #hooks;
  #calls;
  /** @type {Model} */
  #model;
  /** @type {Error | null} */
  #storeError;
  /** @type {Error | null} The error of the tab that leads, as it is shown here. */
  #toldError = null;
  #tabId = randomId();
  /** @type {Election | null} */
  #election = null;
  /** @type {Channel | null} */
  #channel = null;
  /** @type {Engine | null} */
  #engine = null;
  /** @type {Leader | null} */
  #leader = null;
  /** @type {Follower | null} */
  #follower = null;
  /** @type {(() => void) | null} Lets go of the lock that shows that this tab is there. */
  #absent = null;
  #unwatch = () => {};
  #unwatchNetwork = () => {};
  #turn = 0; // grows whenever this tab's role changes; what belongs to an earlier one is void
  #term = 0; // the highest heard of
  #filled = false; // whether the model holds anything yet
  /** @type {"" | "closed" | "outdated"} Why this tab takes part no more. */
  #ended = "";
  /** @type {ConversationKey | null} */
  #shown = null;
  /** @type {ConversationKey[]} */
  #shownElsewhere = [];
  /** @type {() => void} */
  #ready = () => {};

  /**
   * Makes one that does nothing before start.
   * @param {Options & {store: Store, storeError?: Error | null, clock: Clock, log: (message: string) => void}} options
   * @param {RoleHooks} hooks
   */
  constructor(options, hooks) {
    const { userId, store, storeError = null, tabs = browserTabs(), clock, log, timing = {} } = options;
    this.#options = options;
    this.#userId = userId;
    this.#store = store;
    this.#storeError = storeError;
    this.#tabs = tabs;
    this.#clock = clock;
    this.#log = log;
    this.#timing = { ...TAB_TIMING, ...timing };
    this.#hooks = hooks;
    this.#model = new Model(userId);
    this.#calls = new Calls({ clock, ask: (id, call) => this.#ask(id, call) });
  }

  /** What this tab knows; another one whenever its role changes. */
  get model() {
    return this.#model;
  }

  /** @returns {ConnectionState} */
  get state() {
    return this.#ended ? "offline" : this.#model.status.state;
  }

  get detail() {
    return this.#ended || this.#model.status.detail;
  }

  get storeError() {
    const { storeError } = this.#model.status;
    if (!storeError) return this.#storeError;
    const { name, message } = storeError;
    if (this.#toldError?.message !== message) this.#toldError = Object.assign(new Error(message), { name });
    return this.#toldError;
  }

  get leads() {
    return this.#engine !== null;
  }

  get hasEnded() {
    return this.#ended !== "";
  }

  /** Begins, and resolves once there is something to show. */
  async start() {
    const { network = watchNetwork } = this.#options;
    this.#unwatchNetwork = network((quietMs) => this.#doubt(quietMs));
    if (!this.#tabs) return this.#lead();
    const ready = new Promise((/** @type {(value?: undefined) => void} */ resolve) => (this.#ready = resolve));
    this.#unwatch = this.#tabs.watch({ suspend: () => this.#suspend(), resume: () => void this.#join() });
    void this.#join();
    const timer = this.#clock.setTimeout(() => void this.#fillFromStore().then(() => this.#ready()), this.#timing.helloMs);
    await ready;
    this.#clock.clearTimeout(timer);
  }

  /**
   * Ends this tab's part, or with forget that of all tabs, and wipes what is stored.
   * @param {boolean} forget
   */
  async close(forget) {
    if (this.#ended === "closed") return;
    if (forget) this.#channel?.post("forget");
    try {
      if (forget) await this.#forget();
      else await this.#quit();
      if (forget) await this.#wipe(/** @type {Store} */ (this.#options.store));
    } finally {
      this.#store.close();
    }
  }

  /** @param {boolean} offline */
  setOffline(offline) {
    const replaced = !this.#tabs && (!this.#engine || this.detail === "replaced"); // another tab may have written since
    if (!offline && replaced && !this.#ended) void this.#lead();
    else this.do("setOffline", offline);
  }

  /** @param {ConversationKey | null} key */
  show(key) {
    this.#shown = key;
    this.#follower?.show(key);
    this.#attend();
  }

  // ---- what the tab that leads does ----

  /**
   * Has it do something, and gives its answer.
   * @param {string} method
   * @param {any[]} args
   * @param {{patienceMs?: number, now?: boolean}} [options]
   * @returns {Promise<any>}
   */
  call(method, args, options) {
    if (this.#ended) return Promise.reject(new RequestError(ENDINGS[this.#ended]));
    return this.#calls.make(method, args, options);
  }

  /**
   * As call, where nobody waits.
   * @param {string} method
   * @param {any[]} args
   */
  do(method, ...args) {
    this.call(method, args).catch((error) => this.#log(`${method}: ${error.message}`));
  }

  /**
   * As call, for what the server has to be asked for: there is an answer in time, or none.
   * @param {string} method
   * @param {any[]} args
   */
  async inquire(method, ...args) {
    return this.call(method, args, { patienceMs: this.#timing.callMs });
  }

  /**
   * Puts an entry into the outbox, and resolves once it is stored. Where this tab leads, the engine stores it. Where
   * it does not, it is in the shared store before the leader hears of it: whatever becomes of the two tabs, the next
   * leader finds it there.
   * @param {Entry} entry
   */
  async accept(entry) {
    const record = recordOf(entry);
    if (this.#engine || this.#ended) {
      await this.call("accept", [record]);
      return;
    }
    const taken = this.call("accept", [record], { now: !this.#store.shared });
    taken.catch(() => {}); // it is sent all the same, see above
    this.#model.entries.set(entry.clientMsgId, entry);
    this.#changed();
    if (!this.#store.shared) return;
    try {
      await this.#store.commit({ outboxPut: [record] });
    } catch (error) {
      this.#log(`could not store: ${/** @type {Error} */ (error).message}`);
    }
    this.#calls.askAll();
  }

  /**
   * Raises what the user has read or cleared in a conversation; shown at once.
   * @param {string} conversationId
   * @param {{readSeq?: number, clearedSeq?: number}} seqs
   */
  raise(conversationId, seqs) {
    this.do("raise", conversationId, seqs);
    if (this.#engine) return;
    this.#overlay();
    this.#changed();
  }

  // What this tab asked for and the leader has not told of yet is shown all the same.
  #overlay() {
    for (const { method, args } of this.#calls.waiting()) {
      const facts = method === "raise" ? this.#model.facts.get(args[0]) : undefined;
      if (facts) raise(facts, args[1]);
      if (method === "discard") this.#model.entries.delete(args[0]);
      if (method !== "accept" || this.#model.entries.has(args[0].clientMsgId)) continue;
      this.#model.entries.set(args[0].clientMsgId, { ...args[0], ...NOT_IN_FLIGHT });
    }
  }

  /**
   * Asks whoever leads, if anyone does; see Calls.
   * @param {number} id
   * @param {Call} call
   */
  #ask(id, { method, args, isTimed }) {
    const engine = this.#engine;
    if (engine) {
      engine.perform(method, args).then(
        (result) => engine === this.#engine && this.#calls.resolve(id, result),
        (error) => engine === this.#engine && this.#calls.reject(id, error),
      );
    } else if (this.#follower) this.#follower.call(id, method, args);
    else if (!this.#tabs && isTimed) this.#calls.reject(id, new RequestError(AWAY));
  }

  // As retryNow, where it need not be done later if nobody leads now.
  /** @param {number} quietMs */
  #doubt(quietMs) {
    if (this.#engine) this.#engine.retryNow(quietMs);
    else this.#follower?.call(this.#calls.newId(), "retryNow", [quietMs]);
  }

  // ---- who leads ----

  // Takes part: follows whoever leads, and waits to be the next.
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
    await this.#showPresence(tabs, turn);
    if (turn !== this.#turn) return;
    this.#follow();
    this.#election.join();
  }

  // Ends the part of a tab that is to be closed, frozen or put aside: it could not answer the others. It
  // has to be done at once.
  #suspend() {
    this.#turn++;
    this.#channel?.post("bye");
    this.#retire();
    this.#election?.leave();
    this.#absent?.();
    this.#channel?.close();
    this.#election = this.#channel = this.#absent = null;
  }

  /** @param {"closed" | "outdated"} why */
  #end(why) {
    if (this.#ended) return;
    this.#unwatch();
    this.#unwatchNetwork();
    this.#suspend();
    this.#ended = why;
    this.#calls.rejectAll(() => new RequestError(ENDINGS[why]));
    this.#ready();
    this.#changed();
  }

  async #quit() {
    const written = this.#engine?.settled();
    this.#end("closed");
    await written;
  }

  // Ends, and takes back what this tab may have written since another one wiped the store: it may have led by
  // then. What a new sign-in has stored meanwhile stays.
  async #forget() {
    const term = this.#engine ? this.#term : null;
    const outboxDelete = [...this.#model.entries.keys()];
    this.#model = new Model(this.#userId);
    await this.#quit();
    await this.#store.commit({ outboxDelete });
    if (term !== null) await this.#store.commit({ forget: true }, term).catch(unlessFenced);
  }

  // A tab that leads and has not heard of it yet cannot write any more, for the store is claimed. It may claim
  // it in turn before it hears.
  /** @param {Store} store */
  async #wipe(store) {
    for (let tries = 1; ; tries++) {
      const term = await store.claim(Math.max(this.#clock.now(), this.#term));
      const { outbox } = await store.load();
      try {
        return await store.commit({ forget: true, outboxDelete: outbox.map(({ clientMsgId }) => clientMsgId) }, term);
      } catch (error) {
        if (tries === WIPE_TRIES) throw error;
        unlessFenced(error);
      }
    }
  }

  /** Gives up what belongs to leading and following. */
  #retire() {
    this.#engine?.halt();
    this.#leader?.close();
    this.#follower?.close();
    if (this.#follower) this.#term = Math.max(this.#term, this.#follower.term);
    this.#engine = this.#leader = this.#follower = null;
  }

  async #lead() {
    const turn = ++this.#turn;
    this.#retire();
    const { term, saved } = await this.#claim();
    if (turn !== this.#turn) return;
    const earlier = this.#model;
    const { state, windows, storeError } = earlier.status;
    const away = state === "offline" && this.#tabs !== null;
    this.#term = term;
    const model = new Model(this.#userId);
    model.load(saved);
    model.inherit(earlier);
    model.status = { state: away ? "offline" : "connecting", detail: away ? earlier.status.detail : "", windows, inDoubt: model.doubtful.length > 0, storeError: this.#store.shared ? null : storeError };
    this.#model = model;
    this.#filled = true;
    /** @type {Engine} */
    const engine = new Engine({
      ...this.#options,
      WebSocket: this.#options.WebSocket ?? globalThis.WebSocket,
      log: this.#log,
      store: this.#store,
      model,
      term,
      hooks: {
        changed: () => {
          this.#leader?.changed();
          this.#changed();
        },
        kept: (change) => this.#leader?.kept(change),
        news: (conversationId, seqs) => {
          this.#leader?.news(conversationId, seqs);
          this.#hooks.news(conversationId, seqs);
        },
        fenced: () => engine === this.#engine && this.#stepDown(),
      },
    });
    this.#engine = engine;
    const channel = this.#channel;
    if (channel) {
      this.#leader = new Leader({
        channel,
        term,
        model,
        log: this.#log,
        watch: (tabId, signal) => this.#awaitEnd(tabId, signal),
        hooks: {
          perform: (method, args) => engine.perform(method, args),
          settled: () => engine.settled(),
          show: (keys) => {
            this.#shownElsewhere = keys;
            this.#attend();
          },
          superseded: () => engine === this.#engine && this.#stepDown(),
        },
      });
    }
    engine.start();
    this.#attend();
    this.#calls.askAll();
    this.#changed();
    this.#ready();
  }

  // Makes the store this tab's own, and gives what it has. What cannot be stored is held in memory.
  /** @returns {Promise<{term: number, saved: Saved}>} */
  async #claim() {
    const atLeast = Math.max(this.#clock.now(), this.#term);
    try {
      const term = await this.#store.claim(atLeast);
      const saved = await this.#store.load();
      if (!this.#filled || this.#store.shared) return { term, saved };
      const known = this.#model.dump();
      await this.#store.commit({ forget: true, ...known }, term);
      return { term, saved: known };
    } catch (thrown) {
      this.#storeError = /** @type {Error} */ (thrown);
      this.#log(`could not read the store: ${this.#storeError.message}`);
      this.#store = new MemoryStore();
      return { term: await this.#store.claim(atLeast), saved: this.#model.dump() };
    }
  }

  #follow() {
    this.#retire();
    const channel = this.#channel;
    const tabs = this.#tabs;
    if (!channel || !tabs) return;
    this.#follower = new Follower({
      channel,
      term: this.#term,
      key: this.#shown,
      isVisible: tabs.isVisible,
      clock: this.#clock,
      timing: this.#timing,
      hooks: {
        picture: (picture) => this.#take(Model.of(this.#userId, picture)),
        delta: (delta) => {
          this.#model.apply(delta);
          this.#overlay();
          this.#changed();
          for (const [conversationId, seqs] of delta.news) this.#hooks.news(conversationId, seqs);
        },
        answer: (id, { result, error }) => (error ? this.#calls.reject(id, new RequestError(error)) : this.#calls.resolve(id, result)),
        led: () => this.#calls.askAll(),
        silent: () => {
          this.#log("the tab that leads does not answer: this one takes over");
          this.#election?.steal();
        },
      },
    });
    this.#calls.askAll();
  }

  // Another tab leads now: by force, or because this one was away for too long.
  #stepDown() {
    this.#turn++; // also if it was just about to lead
    this.#retire();
    const { state, detail } = this.#model.status;
    const wanted = this.#tabs ? state !== "offline" || detail === "replaced" : false; // it was that other tab that replaced us
    this.#model.status = { ...this.#model.status, state: wanted ? "connecting" : "offline", detail: this.#tabs ? (wanted ? "" : detail) : "replaced" };
    if (this.#tabs) {
      this.#follow();
      this.#election?.join();
    }
    this.#changed();
  }

  // The browser has locks, but not for this page.
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
    this.#model = model;
    this.#filled = true;
    this.#overlay();
    this.#changed();
    this.#ready();
  }

  // For a tab whose leader does not answer: what was stored is there to be read.
  async #fillFromStore() {
    try {
      const saved = await this.#store.load();
      if (this.#filled) return;
      const model = new Model(this.#userId);
      model.load(saved);
      model.inherit(this.#model);
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
        .finally(() => this.#store.close());
      return;
    }
    this.#leader?.receive(message);
    this.#follower?.receive(message);
  }

  #attend() {
    this.#engine?.show(new Set([...this.#shownElsewhere, ...(this.#shown === null ? [] : [this.#shown])]));
  }

  get #name() {
    return ["inorder", this.#options.url, this.#userId, this.#options.deviceId].map(encodeURIComponent).join("/");
  }

  // Holds a lock as long as this tab takes part, so that its leader notices when it is gone.
  /**
   * @param {Tabs} tabs
   * @param {number} turn
   */
  #showPresence({ locks }, turn) {
    return new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
      const held = () =>
        new Promise((/** @type {(value?: undefined) => void} */ release) => {
          resolve();
          if (turn === this.#turn) this.#absent = release;
          else release(); // put aside meanwhile
        });
      locks.request(this.#presenceOf(this.#tabId), held).catch(() => resolve()); // the election tells what is wrong
    });
  }

  /**
   * @param {string} tabId
   * @param {AbortSignal} signal
   */
  async #awaitEnd(tabId, signal) {
    await this.#tabs?.locks.request(this.#presenceOf(tabId), { signal }, () => undefined);
  }

  /** @param {string} tabId */
  #presenceOf(tabId) {
    return `${this.#name}/${tabId}`;
  }

  #changed() {
    this.#hooks.changed();
  }
}

/** @param {unknown} error */
function unlessFenced(error) {
  if (!(error instanceof FencedError)) throw error;
}

function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
