import type { Model } from "./model.js";
import type { Clock, ConversationKey, Entry, Store, StoreChange } from "./types.js";
/**
 * @import { Ledger } from "./ledger.js"
 * @import { Model } from "./model.js"
 * @import { Clock, ConversationKey, Entry, Facts, Lost, Message, Store, StoreChange } from "./types.js"
 */
/** How patient the client is, in ms. */
export declare const TIMING: Readonly<{
    backoffBaseMs: 300;
    backoffCapMs: 10000;
    requestTimeoutMs: 10000;
    dialTimeoutMs: 15000;
    probeMs: 5000;
    stableMs: 5000;
    lifeMs: number;
    lifeJitterMs: number;
    gapWaitMs: 200;
    memberWaitMs: 2;
    spreadCapMs: 2000;
    ownWaitMs: 2000;
    flushWaitMs: 5000;
    tellWaitMs: 1000;
    heartbeatMs: number;
}>;
export declare const LIMITS: Readonly<{
    pull: 100;
    late: 300;
    end: 100;
    outbox: 1000;
    lost: 100;
    lostOfOthers: 1000;
}>;
export type Timing = Partial<Record<keyof typeof TIMING, number>>;
export type Limits = Partial<Record<keyof typeof LIMITS, number>>;
export type Session = {
    flush: any;
    heartbeat: any;
    catching: Promise<void> | null;
    again: boolean;
    headsCursor?: string;
};
export type EngineHooks = {
    /**
     * whenever anything shown may have changed
     */
    changed: () => void;
    /**
     * what became part of the model for good
     */
    kept: (change: StoreChange) => void;
    /**
     * messages of others that have come and are not read
     */
    news: (conversationId: string, seqs: number[]) => void;
    /**
     * another tab has claimed the store: this engine has to be halted
     */
    fenced: () => void;
};
/** @typedef {Partial<Record<keyof typeof TIMING, number>>} Timing in ms */
/** @typedef {Partial<Record<keyof typeof LIMITS, number>>} Limits */
/**
 * What belongs to one connection: when the next one comes, the work of the last is void.
 * @typedef {{flush: any, heartbeat: any, catching: Promise<void> | null, again: boolean, headsCursor?: string}} Session
 */
/**
 * @typedef {object} EngineHooks
 * @property {() => void} changed whenever anything shown may have changed
 * @property {(change: StoreChange) => void} kept what became part of the model for good
 * @property {(conversationId: string, seqs: number[]) => void} news messages of others that have come and are not read
 * @property {() => void} fenced another tab has claimed the store: this engine has to be halted
 */
export declare class Engine {
    #private;
    /**
     * @param {object} parts
     * @param {Model} parts.model
     * @param {Store} parts.store
     * @param {number} parts.term what the store gave when it was claimed
     * @param {EngineHooks} parts.hooks
     * @param {string} parts.url
     * @param {string} parts.userId
     * @param {string} parts.deviceId
     * @param {() => Promise<string> | string} parts.token gives a JWT for each connect; an error with `permanent` stops
     * @param {typeof globalThis.WebSocket} parts.WebSocket
     * @param {Clock} [parts.clock]
     * @param {() => number} [parts.random]
     * @param {(message: string) => void} [parts.log]
     * @param {Timing} [parts.timing]
     * @param {Limits} [parts.limits]
     */
    constructor({ model, store, term, hooks, url, userId, deviceId, token, WebSocket, clock, random, log, timing, limits }: {
        model: Model;
        store: Store;
        term: number;
        hooks: EngineHooks;
        url: string;
        userId: string;
        deviceId: string;
        token: () => Promise<string> | string;
        WebSocket: typeof globalThis.WebSocket;
        clock?: Clock;
        random?: () => number;
        log?: (message: string) => void;
        timing?: Timing;
        limits?: Limits;
    });
    /** Connects, unless the model's status says that the device is to stay away. */
    start(): void;
    /** Ends: the socket is closed at once, and nothing is written any more that was not asked for yet. */
    halt(): void;
    /** Resolves when all that came is stored. */
    settled(): Promise<void>;
    /** @param {boolean} offline */
    setOffline(offline: boolean): void;
    /** @param {number} [quietMs] see Connection */
    retryNow(quietMs?: number): void;
    /**
     * Takes what the user asked for, once. Resolves when it is stored.
     * @param {Entry} entry
     */
    accept(entry: Entry): Promise<void>;
    /**
     * Puts what the server has lost of a conversation aside.
     * @param {ConversationKey} key
     */
    discardLost(key: ConversationKey): void;
    /** @param {string} clientMsgId */
    discard(clientMsgId: string): void;
    /**
     * Sends what was refused again, after all else, and with a group that could not be made what was meant for
     * it. Gives its clientMsgId, which is a new one if the server would refuse the old one for itself; null if
     * nothing of it was refused.
     * @param {string} clientMsgId
     * @returns {Promise<string | null>}
     */
    retry(clientMsgId: string): Promise<string | null>;
    /**
     * Says which conversations are on screen: more is kept up to date of them.
     * @param {Set<ConversationKey>} keys
     */
    show(keys: Set<ConversationKey>): void;
    /**
     * Raises the user's own positions in a conversation.
     * @param {string} conversationId
     * @param {{readSeq?: number, clearedSeq?: number}} positions
     */
    raise(conversationId: string, positions: {
        readSeq?: number;
        clearedSeq?: number;
    }): void;
    /**
     * Loads a page of what is before the first entry held. Rejects with a RequestError.
     * @param {ConversationKey} key
     */
    loadEarlier(key: ConversationKey): Promise<void>;
    /**
     * Who has received and who has read a message. Rejects with a RequestError.
     * @param {ConversationKey} key
     * @param {number} seq
     */
    receipts(key: ConversationKey, seq: number): Promise<{
        delivered: string[];
        read: string[];
    }>;
}
