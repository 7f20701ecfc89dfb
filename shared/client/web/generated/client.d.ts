import type { Limits, Timing } from "./engine.js";
import type { watchNetwork } from "./network.js";
import type { TabTiming } from "./role.js";
import type { Tabs } from "./tabs.js";
import type { Clock, Content, Conversation, ConversationKey, Member, NewMessage, Row, Store } from "./types.js";
export type Options = {
    /**
     * the server's, such as wss://abc.execute-api.eu-west-1.amazonaws.com/v1; or relative to the
     * page, such as /v1, where the page's host passes connections on
     */
    url: string;
    /**
     * the user whose token it is: its sub, or whom else the server takes it for. It cannot be
     * left out: a device shows what it has, and accepts messages to send, before it has ever been connected
     */
    userId: string;
    /**
     * 1 to 64 of A-Z a-z 0-9 . _ and -, the same after a reload and in all tabs that are to
     * share a connection
     */
    deviceId: string;
    /**
     * returns a JWT, or another token that the server accepts: if it
     * cannot be read here, the server says whose it is. It is called before each connect, in the tab that leads. If it
     * throws, the attempt has failed; an error with `permanent: true` ends the attempts until setOffline(false).
     */
    token: () => Promise<string> | string;
    /**
     * IndexedDB, or memory where the browser offers none
     */
    store?: Store;
    /**
     * how tabs find each other; null for a tab that is alone
     */
    tabs?: Tabs | null;
    WebSocket?: typeof globalThis.WebSocket;
    /**
     * receives what a program need not act on; console.warn if left out
     */
    log?: (message: string) => void;
    /**
     * for tests
     */
    network?: typeof watchNetwork;
    /**
     * for tests
     */
    clock?: Clock;
    /**
     * for tests
     */
    random?: () => number;
    /**
     * in ms
     */
    timing?: Timing & TabTiming;
    limits?: Limits;
};
/**
 * @import { Limits, Timing } from "./engine.js"
 * @import { watchNetwork } from "./network.js"
 * @import { TabTiming } from "./role.js"
 * @import { Tabs } from "./tabs.js"
 * @import { Address, Clock, Content, Conversation, ConversationKey, Member, NewMessage, Row, Store } from "./types.js"
 */
/**
 * Who this device is and where the server is.
 * @typedef {object} Options
 * @property {string} url the server's, such as wss://abc.execute-api.eu-west-1.amazonaws.com/v1; or relative to the
 *   page, such as /v1, where the page's host passes connections on
 * @property {string} userId the user whose token it is: its sub, or whom else the server takes it for. It cannot be
 *   left out: a device shows what it has, and accepts messages to send, before it has ever been connected
 * @property {string} deviceId 1 to 64 of A-Z a-z 0-9 . _ and -, the same after a reload and in all tabs that are to
 *   share a connection
 * @property {() => Promise<string> | string} token returns a JWT, or another token that the server accepts: if it
 *   cannot be read here, the server says whose it is. It is called before each connect, in the tab that leads. If it
 *   throws, the attempt has failed; an error with `permanent: true` ends the attempts until setOffline(false).
 * @property {Store} [store] IndexedDB, or memory where the browser offers none
 * @property {Tabs | null} [tabs] how tabs find each other; null for a tab that is alone
 * @property {typeof globalThis.WebSocket} [WebSocket]
 * @property {(message: string) => void} [log] receives what a program need not act on; console.warn if left out
 * @property {typeof watchNetwork} [network] for tests
 * @property {Clock} [clock] for tests
 * @property {() => number} [random] for tests
 * @property {Timing & TabTiming} [timing] in ms
 * @property {Limits} [limits]
 */
/**
 * Opens a device: all tabs of an origin that open the same url, userId and deviceId are one, with one connection and
 * one store. Resolves once there is something to show, which needs no connection; where the browser has no storage,
 * storeError of the result says so, and all is kept in memory. A TypeError says which option is wrong.
 * @param {Options} options
 * @returns {Promise<InorderClient>}
 */
export declare function open(options: Options): Promise<InorderClient>;
/**
 * One device of one user, as a tab holds it. See open.
 *
 * What the user asks for (send, createGroup, addMembers, …, recall, edit) is put into the outbox; the method resolves
 * to its clientMsgId once it is stored. It is sent, and sent again, until the server answers. Until then, and if it is
 * refused, messages shows it.
 *
 * Emits "change" whenever anything shown may have changed; see subscribe. Reading is synchronous, and returns the same
 * objects until what they say changes. They are frozen.
 *
 * Emits "message", a CustomEvent whose detail is a NewMessage, for each message of others that arrives, in each tab of
 * the device, after the "change" it comes with; not for what was there when the device was new.
 */
export declare class InorderClient extends EventTarget {
    #private;
    userId: string;
    deviceId: string;
    /**
     * Makes a client that does nothing before start. Programs call open.
     * @param {Options & {store: Store, storeError?: Error | null}} options
     */
    constructor(options: Options & {
        store: Store;
        storeError?: Error | null;
    });
    get state(): import("./types.js").ConnectionState;
    /**
     * The reason of the state, for people. If the server sent this device away for good, it is the goodbye's: "replaced"
     * by a newer connection of this device, or one of too many "devices". "outdated" says that a newer version of this
     * code runs in another tab and this one has to be reloaded; "closed" that close was called.
     */
    get detail(): string;
    /** The error that ended persistence, or null. From then on everything lives in memory only. */
    get storeError(): Error | null;
    /** Whether this tab has the device's connection. */
    get leads(): boolean;
    /** Begins; open calls it. */
    start(): Promise<void>;
    /**
     * Ends this tab's part, and resolves once all is written. Other tabs go on, and one of them leads. The outbox stays.
     *
     * With forget, for a machine that others use too, all tabs of the device end and all that they have stored is wiped,
     * also what was not sent. Rejects if that fails.
     * @param {{forget?: boolean}} [options]
     */
    close({ forget }?: {
        forget?: boolean;
    }): Promise<void>;
    /**
     * Drops the device's connection and stays away, or comes back; for all of its tabs.
     * @param {boolean} offline
     */
    setOffline(offline: boolean): void;
    /**
     * Connects now if it waits to, and checks whether an open connection still works. The client does so by itself when
     * the browser says that the network is back, and when the page comes into sight.
     */
    retryNow(): void;
    /**
     * Calls onChange whenever anything shown may have changed, until the returned function is called. It needs no `this`,
     * and fits React's useSyncExternalStore with any of the methods below.
     * @param {() => void} onChange
     * @returns {() => void}
     */
    subscribe: (onChange: () => void) => () => void;
    /**
     * @overload
     * @param {"message"} type
     * @param {(event: CustomEvent<NewMessage>) => void} listener
     * @param {boolean | AddEventListenerOptions} [options]
     * @returns {void}
     */
    /**
     * @overload
     * @param {string} type
     * @param {EventListenerOrEventListenerObject | null} listener
     * @param {boolean | AddEventListenerOptions} [options]
     * @returns {void}
     */
    /**
     * As every EventTarget has it.
     * @param {string} type
     * @param {any} listener
     * @param {boolean | AddEventListenerOptions} [options]
     */
    addEventListener(type: "message", listener: (event: CustomEvent<NewMessage>) => void, options?: boolean | AddEventListenerOptions): void;
    /**
     * @overload
     * @param {"message"} type
     * @param {(event: CustomEvent<NewMessage>) => void} listener
     * @param {boolean | AddEventListenerOptions} [options]
     * @returns {void}
     */
    /**
     * @overload
     * @param {string} type
     * @param {EventListenerOrEventListenerObject | null} listener
     * @param {boolean | AddEventListenerOptions} [options]
     * @returns {void}
     */
    /**
     * As every EventTarget has it.
     * @param {string} type
     * @param {any} listener
     * @param {boolean | AddEventListenerOptions} [options]
     */
    addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions): void;
    /**
     * The key of the conversation with a user, known to the server or not.
     * @param {string} userId
     * @returns {ConversationKey}
     */
    keyFor(userId: string): ConversationKey;
    /**
     * The key a conversation has now; it changes when the server names the conversation.
     * @param {ConversationKey} key
     */
    currentKey(key: ConversationKey): string;
    /**
     * The conversations, most recent first.
     * @returns {readonly Conversation[]}
     */
    conversations(): readonly Conversation[];
    /**
     * One conversation as in conversations, also for a key that nothing was sent to yet.
     * @param {ConversationKey} key
     * @returns {Conversation}
     */
    conversation(key: ConversationKey): Conversation;
    /**
     * The last `limit` rows of a conversation in order; what the server has not numbered yet is at the end.
     * @param {ConversationKey} key
     * @param {number} [limit]
     * @returns {readonly Row[]}
     */
    messages(key: ConversationKey, limit?: number): readonly Row[];
    /**
     * The members of a group, or null while unknown; show makes them known.
     * @param {ConversationKey} key
     * @returns {readonly Member[] | null}
     */
    members(key: ConversationKey): readonly Member[] | null;
    /**
     * Whether we may do something in a group, as far as is known; see may in rights.js.
     * @param {ConversationKey} key
     * @param {string} action
     * @param {string} [target]
     */
    may(key: ConversationKey, action: string, target?: string): boolean;
    /**
     * Sends a message, as the answer to the row replyTo if there is one. Resolves to its clientMsgId once it is stored. A
     * RangeError says what is wrong with the text, a TypeError what JSON cannot hold.
     * @param {ConversationKey} key
     * @param {string | Content} content
     * @param {{replyTo?: Pick<Row, "seq" | "messageId"> | null}} [options]
     */
    send(key: ConversationKey, content: string | Content, { replyTo }?: {
        replyTo?: Pick<Row, "seq" | "messageId"> | null;
    }): Promise<string>;
    /**
     * Makes a group of us and up to 47 members, and returns its key at once. A RangeError says what is wrong with the
     * title. If the server refuses it, the conversation is closed, "failed"; see retry and discard.
     * @param {string} title
     * @param {string[]} members
     * @returns {ConversationKey}
     */
    createGroup(title: string, members: string[]): ConversationKey;
    /**
     * Adds up to 48 users to a group, which has up to 1,000. Who lately left it by itself is not added.
     * @param {ConversationKey} key
     * @param {string[]} members
     */
    addMembers(key: ConversationKey, members: string[]): Promise<string>;
    /**
     * Removes up to 48 members from a group, not ourselves: see leave.
     * @param {ConversationKey} key
     * @param {string[]} members
     */
    removeMembers(key: ConversationKey, members: string[]): Promise<string>;
    /**
     * Takes us out of a group, a dissolved one too. If we own it, the oldest admin does then, or else the oldest member.
     * @param {ConversationKey} key
     */
    leave(key: ConversationKey): Promise<string>;
    /**
     * Gives another member a role. If that is owner, we become an admin.
     * @param {ConversationKey} key
     * @param {string} userId
     * @param {import("./types.js").Role} role
     */
    setRole(key: ConversationKey, userId: string, role: import("./types.js").Role): Promise<string>;
    /**
     * Renames a group. A RangeError says what is wrong with the title.
     * @param {ConversationKey} key
     * @param {string} title
     */
    setTitle(key: ConversationKey, title: string): Promise<string>;
    /**
     * Ends a group: it can be read and left, and takes no messages any more.
     * @param {ConversationKey} key
     */
    dissolve(key: ConversationKey): Promise<string>;
    /**
     * Takes a message back, given its row.
     * @param {ConversationKey} key
     * @param {Pick<Row, "seq" | "messageId">} row
     */
    recall(key: ConversationKey, { seq, messageId }: Pick<Row, "seq" | "messageId">): Promise<string>;
    /**
     * Replaces the content of an own message, given its row. A RangeError says what is wrong with the text.
     * @param {ConversationKey} key
     * @param {Pick<Row, "seq" | "messageId">} row
     * @param {string | Omit<Content, "type">} content
     */
    edit(key: ConversationKey, { seq, messageId }: Pick<Row, "seq" | "messageId">, content: string | Omit<Content, "type">): Promise<string>;
    /**
     * Forgets what was refused; if that is a group that could not be made, also what was meant for it.
     * @param {string} clientMsgId
     */
    discard(clientMsgId: string): void;
    /**
     * Sends again what was refused, after all else; if that is a group that could not be made, also what was meant for
     * it. Resolves to its clientMsgId once it is stored, or to null if nothing has this clientMsgId.
     * @param {string} clientMsgId
     * @returns {Promise<string | null>}
     */
    retry(clientMsgId: string): Promise<string | null>;
    /**
     * Says which conversation is on screen in this tab, or null: its members and receipts are kept up to date.
     * @param {ConversationKey | null} key
     */
    show(key: ConversationKey | null): void;
    /**
     * Notes that the user has seen what a conversation shows, up to the seq throughSeq, or all of it.
     * @param {ConversationKey} key
     * @param {number} [throughSeq]
     */
    markRead(key: ConversationKey, throughSeq?: number): void;
    /**
     * Hides everything shown in a conversation, for this user on all devices.
     * @param {ConversationKey} key
     */
    clear(key: ConversationKey): void;
    /**
     * Forgets the lost rows of a conversation, but not those of the outbox, which discard forgets.
     * @param {ConversationKey} key
     */
    discardLost(key: ConversationKey): void;
    /**
     * Loads a page of what is before the first entry held. Rejects with a RequestError.
     * @param {ConversationKey} key
     * @returns {Promise<void>}
     */
    loadEarlier(key: ConversationKey): Promise<void>;
    /**
     * Who has received and who has read a message. Rejects with a RequestError.
     * @param {ConversationKey} key
     * @param {number} seq
     * @returns {Promise<{delivered: string[], read: string[]}>}
     */
    receipts(key: ConversationKey, seq: number): Promise<{
        delivered: string[];
        read: string[];
    }>;
}
