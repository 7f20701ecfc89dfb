// What the tabs of one device say to each other. Every tab hears everything but a picture, which is large and goes to
// one. What is not understood is ignored, so that a stray message does no harm.
//
//   hello {key}               a follower is there; it wants a picture
//   show {key}                what it has on screen
//   call {id, method, args}   it wants something done
//   ping {}                   is anyone leading?
//   bye {}                    it closes
//   forget {}                 from any tab: all end, and what is stored is wiped
//
//   lead {term}               there is a new leader; all that was asked of another is to be asked again
//   picture {term, n, picture}, delta {term, n, delta}
//   answer {to, term, id, result or error}
//   pong {to, term, n}

/** Grows when tabs of different versions of this code would misunderstand each other. */
export const CHANNEL_VERSION = 4;

/** @typedef {{v: number, from: string, to?: string, type: string, term?: number, [field: string]: any}} ChannelMessage */

/**
 * @typedef {object} Port the part of a BroadcastChannel that is used
 * @property {(message: any) => void} postMessage
 * @property {() => void} close
 * @property {((event: any) => void) | null} onmessage
 */

/**
 * @typedef {object} ChannelHooks
 * @property {(message: ChannelMessage) => void} message
 * @property {() => void} newer a tab runs a newer version of this code
 * @property {() => void} older a tab runs an older version of this code
 */

export class Channel {
  #open;
  #name;
  #hooks;
  #log;
  #ports;

  /**
   * @param {object} parts
   * @param {(name: string) => Port} parts.open
   * @param {string} parts.name the same in all tabs of a device
   * @param {string} parts.tabId
   * @param {ChannelHooks} parts.hooks
   * @param {(message: string) => void} parts.log
   */
  constructor({ open, name, tabId, hooks, log }) {
    this.#open = open;
    this.#name = name;
    this.#hooks = hooks;
    this.#log = log;
    this.tabId = tabId;
    this.#ports = [name, inboxOf(name, tabId)].map((portName) => {
      const port = open(portName);
      port.onmessage = ({ data }) => this.#receive(data);
      return port;
    });
  }

  /** @param {string} type @param {object} [fields] */
  post(type, fields) {
    this.#ports[0].postMessage({ v: CHANNEL_VERSION, from: this.tabId, type, ...fields });
  }

  /**
   * Opens the way to one tab alone.
   * @param {string} tabId
   */
  inbox(tabId) {
    const port = this.#open(inboxOf(this.#name, tabId));
    return {
      /** @param {string} type @param {object} fields */
      post: (type, fields) => port.postMessage({ v: CHANNEL_VERSION, from: this.tabId, type, ...fields }),
      close: () => port.close(),
    };
  }

  close() {
    for (const port of this.#ports) {
      port.onmessage = null;
      port.close();
    }
  }

  /** @param {unknown} data */
  #receive(data) {
    const message = /** @type {ChannelMessage} */ (data);
    if (typeof message !== "object" || message === null || !Number.isInteger(message.v)) return;
    try {
      if (message.v > CHANNEL_VERSION) this.#hooks.newer();
      else if (message.v < CHANNEL_VERSION) this.#hooks.older();
      else if (typeof message.from === "string" && (message.to ?? this.tabId) === this.tabId) this.#hooks.message(message);
    } catch (error) {
      this.#log(`ignored a message of another tab, ${message.type}: ${error}`);
    }
  }
}

/** @param {string} name @param {string} tabId */
function inboxOf(name, tabId) {
  return `${name}#${tabId}`;
}
