// A browser with tabs in virtual time: locks, broadcast channels and storage that the tabs share. A tab may be killed,
// frozen or put aside at any moment.

import { watchNetwork } from "../network.js";
import { browserTabs } from "../tabs.js";
import { MemoryStore } from "../store.js";

export class FakeBrowser {
  #clock;
  #locks = new Map(); // name → {holder, queue}
  ports = new Set();

  constructor(clock) {
    this.#clock = clock;
  }

  newTab(WebSocket) {
    return new FakeTab(this, this.#clock, WebSocket);
  }

  /** Delivers what one tab posts to all other ports of that name. */
  broadcast(from, data) {
    const copy = structuredClone(data);
    for (const port of this.ports) {
      if (port === from || port.name !== from.name) continue;
      this.#clock.setTimeout(() => this.ports.has(port) && port.tab.run(() => port.onmessage?.({ data: copy })), 1);
    }
  }

  lock(tab, name, options, granted) {
    return new Promise((resolve, reject) => {
      if (!this.#locks.has(name)) this.#locks.set(name, { holder: null, queue: [] });
      const lock = this.#locks.get(name);
      const request = { tab, granted, resolve, reject };
      options.signal?.addEventListener("abort", () => {
        if (lock.queue.includes(request)) this.#refuse(lock, request, options.signal.reason);
      });
      if (options.steal) {
        const robbed = lock.holder;
        lock.holder = null;
        lock.queue.unshift(request);
        robbed?.tab.run(() => robbed.reject(new DOMException("stolen", "AbortError")));
      } else lock.queue.push(request);
      this.#grant(lock);
    });
  }

  #refuse(lock, request, reason) {
    lock.queue.splice(lock.queue.indexOf(request), 1);
    request.reject(reason);
  }

  #grant(lock) {
    if (lock.holder || lock.queue.length === 0) return;
    const request = lock.queue.shift();
    lock.holder = request;
    const free = () => {
      if (lock.holder !== request) return;
      lock.holder = null;
      this.#grant(lock);
    };
    request.tab.run(async () => {
      await null; // it is never granted within the call
      try {
        request.resolve(await request.granted());
      } catch (error) {
        request.reject(error);
      }
      free();
    });
  }

  /** Frees what a dead tab held or waited for. */
  bury(tab) {
    for (const port of this.ports) if (port.tab === tab) this.ports.delete(port);
    for (const lock of this.#locks.values()) {
      lock.queue = lock.queue.filter((request) => request.tab !== tab);
      if (lock.holder?.tab !== tab) continue;
      lock.holder = null;
      this.#grant(lock);
    }
  }
}

class FakeTab {
  #state = "running"; // or "frozen", "dead"
  #waiting = []; // what is done once a frozen tab is back
  #browser;
  #sockets = new Set();
  #scope;
  visible = true;

  constructor(browser, clock, WebSocket) {
    this.#browser = browser;
    const tab = this;
    this.window = new EventTarget();
    this.document = new EventTarget();
    this.clock = {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      setTimeout: (fn, ms) => {
        const timer = { cleared: false, id: clock.setTimeout(() => this.run(() => timer.cleared || fn()), ms) };
        return timer;
      },
      // Clears also a timer that is due and waits for a frozen tab to come back.
      clearTimeout: (timer) => {
        if (!timer) return;
        timer.cleared = true;
        clock.clearTimeout(timer.id);
      },
    };
    this.network = (doubt) => watchNetwork(doubt, this.#scope);
    this.WebSocket = class extends WebSocket {
      #on = {};
      constructor(...args) {
        super(...args);
        tab.#sockets.add(this);
      }
      close() {
        tab.#sockets.delete(this);
        super.close();
      }
    };
    for (const name of ["onopen", "onmessage", "onclose"]) {
      const handlers = new WeakMap();
      Object.defineProperty(this.WebSocket.prototype, name, {
        get() {
          return (event) => tab.run(() => handlers.get(this)?.(event));
        },
        set(handler) {
          handlers.set(this, handler);
        },
      });
    }
    this.#scope = {
      navigator: { locks: { request: (name, ...rest) => browser.lock(this, name, rest.length > 1 ? rest[0] : {}, rest.at(-1)) } },
      BroadcastChannel: class {
        onmessage = null;
        constructor(name) {
          this.name = name;
          this.tab = tab;
          browser.ports.add(this);
        }
        postMessage(data) {
          if (tab.isDead) return;
          if (!browser.ports.has(this)) throw new DOMException("closed", "InvalidStateError");
          browser.broadcast(this, data);
        }
        close() {
          browser.ports.delete(this);
        }
      },
      document: Object.defineProperty(this.document, "visibilityState", { get: () => (tab.visible ? "visible" : "hidden") }),
      addEventListener: (...args) => this.window.addEventListener(...args),
      removeEventListener: (...args) => this.window.removeEventListener(...args),
    };
    this.tabs = browserTabs(this.#scope);
  }

  get isDead() {
    return this.#state === "dead";
  }

  /** Runs a function of this tab, now, later or never. */
  run(fn) {
    if (this.#state === "running") fn();
    else if (this.#state === "frozen") this.#waiting.push(fn);
  }

  /** Ends the tab as a crash does: nothing of it runs any more. */
  kill() {
    this.#state = "dead";
    for (const socket of this.#sockets) socket.close();
    this.#browser.bury(this);
  }

  /** Stops the tab silently, as a debugger or a phone does. */
  stall() {
    this.#state = "frozen";
  }

  /** Stops the tab after telling it, as a browser does. */
  freeze() {
    this.document.dispatchEvent(new Event("freeze"));
    this.stall();
  }

  wake() {
    this.#state = "running";
    for (const fn of this.#waiting.splice(0)) this.clock.setTimeout(fn, 0); // one task after the other
  }

  thaw() {
    this.wake();
    this.document.dispatchEvent(new Event("resume"));
  }

  /** The network changed. */
  goOnline() {
    this.window.dispatchEvent(new Event("online"));
  }

  setVisible(visible) {
    this.visible = visible;
    this.document.dispatchEvent(new Event("visibilitychange"));
  }

  /** Leaves the page, in a way that it can come back. */
  putAside() {
    this.window.dispatchEvent(Object.assign(new Event("pagehide"), { persisted: true }));
    this.stall();
  }

  comeBack() {
    this.wake();
    this.window.dispatchEvent(Object.assign(new Event("pageshow"), { persisted: true }));
  }
}

/** Storage that all tabs share, as IndexedDB is. */
export class SharedStore extends MemoryStore {
  shared = true;
}
