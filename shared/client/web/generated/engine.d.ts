import { Answers } from "./answers.js";
import { Changes } from "./changes.js";
import { Entries } from "./entries.js";
import { LostMessages } from "./lost.js";
import { OnScreen } from "./onscreen.js";
import { Outbox } from "./outbox.js";
import { Positions } from "./positions.js";
import { Pulls } from "./pulls.js";
import { Receipts } from "./receipts.js";
import { Rosters } from "./rosters.js";
import { Session } from "./session.js";
import { StartOver } from "./startover.js";
import { Writer } from "./writer.js";
import type { Model } from "./model.js";
import type { Server } from "./session.js";
import type { Clock, ConversationKey, Store, StoreChange } from "./types.js";
/**
 * @import { Model } from "./model.js"
 * @import { Server } from "./session.js"
 * @import { Clock, ConversationKey, Store, StoreChange } from "./types.js"
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
    spreadCapMs: 200000;
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
export type Parts = {
    userId: string;
    deviceId: string;
    model: Model;
    clock: Clock;
    random: () => number;
    log: (message: string) => void;
    timing: Record<keyof typeof TIMING, number>;
    limits: Record<keyof typeof LIMITS, number>;
    changed: EngineHooks["changed"];
    news: EngineHooks["news"];
    sleep: (ms: number) => Promise<void>;
    writer: Writer;
    session: Session;
    changes: Changes;
    pulls: Pulls;
    entries: Entries;
    outbox: Outbox;
    answers: Answers;
    positions: Positions;
    receipts: Receipts;
    rosters: Rosters;
    onScreen: OnScreen;
    lost: LostMessages;
    startOver: StartOver;
};
export type EngineOptions = {
    model: Model;
    store: Store;
    /**
     * what the store returned when it was claimed
     */
    term: number;
    hooks: EngineHooks;
    userId: string;
    deviceId: string;
    clock?: Clock;
    random?: () => number;
    log?: (message: string) => void;
    timing?: Timing;
    limits?: Limits;
};
/** @typedef {Partial<Record<keyof typeof TIMING, number>>} Timing in ms */
/** @typedef {Partial<Record<keyof typeof LIMITS, number>>} Limits */
/**
 * @typedef {object} EngineHooks
 * @property {() => void} changed whenever anything shown may have changed
 * @property {(change: StoreChange) => void} kept what became part of the model for good
 * @property {(conversationId: string, seqs: number[]) => void} news messages of others that have come and are not read
 * @property {() => void} fenced another tab has claimed the store: this engine has to be halted
 */
/**
 * What the parts of an engine share: what they were given, and each other.
 * @typedef {object} Parts
 * @property {string} userId
 * @property {string} deviceId
 * @property {Model} model
 * @property {Clock} clock
 * @property {() => number} random
 * @property {(message: string) => void} log
 * @property {Record<keyof typeof TIMING, number>} timing
 * @property {Record<keyof typeof LIMITS, number>} limits
 * @property {EngineHooks["changed"]} changed
 * @property {EngineHooks["news"]} news
 * @property {(ms: number) => Promise<void>} sleep
 * @property {Writer} writer
 * @property {Session} session
 * @property {Changes} changes
 * @property {Pulls} pulls
 * @property {Entries} entries
 * @property {Outbox} outbox
 * @property {Answers} answers
 * @property {Positions} positions
 * @property {Receipts} receipts
 * @property {Rosters} rosters
 * @property {OnScreen} onScreen
 * @property {LostMessages} lost
 * @property {StartOver} startOver
 */
/**
 * @typedef {object} EngineOptions
 * @property {Model} model
 * @property {Store} store
 * @property {number} term what the store returned when it was claimed
 * @property {EngineHooks} hooks
 * @property {string} userId
 * @property {string} deviceId
 * @property {Clock} [clock]
 * @property {() => number} [random]
 * @property {(message: string) => void} [log]
 * @property {Timing} [timing]
 * @property {Limits} [limits]
 */
export declare class Engine {
    #private;
    /** @param {EngineOptions & Server} given */
    constructor({ model, store, term, hooks, userId, deviceId, clock, random, log, timing, limits, ...server }: EngineOptions & Server);
    /** Connects, unless the model's status says that the device is to stay away. */
    start(): void;
    /** Ends: the socket is closed at once, and nothing is written any more that was not asked for yet. */
    halt(): void;
    /** Resolves when all that came is stored. */
    settled(): Promise<void>;
    /** @param {number} [quietMs] see Connection */
    retryNow(quietMs?: number): void;
    /**
     * Says which conversations are on screen: more is kept up to date of them.
     * @param {Set<ConversationKey>} keys
     */
    show(keys: Set<ConversationKey>): void;
    /**
     * Does what a tab asks for, which may be asked for twice.
     * @param {string} method
     * @param {any[]} args
     */
    perform(method: string, [first, second]: any[]): Promise<void | string | {
        delivered: string[];
        read: string[];
    } | null>;
}
