import type { Clock, ConnectionState } from "./types.js";
/** @import { Clock, ConnectionState } from "./types.js" */
/** API Gateway takes frames up to 32 KB; longer ones close the connection with 1009. */
export declare const MAX_FRAME_BYTES: number;
export declare const TIMING: Readonly<{
    backoffBaseMs: 300;
    backoffCapMs: 10000;
    requestTimeoutMs: 10000;
    dialTimeoutMs: 15000;
    probeMs: 5000;
    stableMs: 5000;
    lifeMs: number;
    lifeJitterMs: number;
}>;
/** @type {Clock} */
export declare const systemClock: Clock;
/**
 * A delay anywhere between nothing and an exponentially growing, capped bound ("full jitter").
 * @param {() => number} random @param {number} attempt @param {{backoffBaseMs: number, backoffCapMs: number}} timing
 */
export declare function fullJitter(random: () => number, attempt: number, { backoffBaseMs, backoffCapMs }: {
    backoffBaseMs: number;
    backoffCapMs: number;
}): number;
/**
 * The pause before asking again, in ms: what the server asked for, up to the cap, plus the jitter.
 * @param {{details?: any}} error @param {() => number} random @param {number} attempt
 * @param {{backoffBaseMs: number, backoffCapMs: number}} timing
 */
export declare function pauseAfter(error: {
    details?: any;
}, random: () => number, attempt: number, timing: {
    backoffBaseMs: number;
    backoffCapMs: number;
}): number;
/**
 * A request that got no result. code is one of the protocol's or of the client's own (see the README). If retryable is
 * true, asking again may help. field names what is wrong, details may say more.
 */
export declare class RequestError extends Error {
    code: string;
    retryable: boolean;
    field: string | undefined;
    details: any;
    /** @param {{code: string, message?: string, retryable?: boolean, field?: string, details?: any}} error */
    constructor({ code, message, retryable, field, details }: {
        code: string;
        message?: string;
        retryable?: boolean;
        field?: string;
        details?: any;
    });
}
export type ConnectionHooks = {
    /**
     * returns a new socket, unless it is not wanted any
     * more; an error with `permanent` ends the attempts
     */
    open: (isWanted: () => boolean) => Promise<WebSocket>;
    onOpen: () => void;
    onPush: (frame: any) => void;
    onState: () => void;
};
export type Pending = {
    resolve: (result: any) => void;
    reject: (error: RequestError) => void;
    timer: any;
};
/**
 * @typedef {object} ConnectionHooks
 * @property {(isWanted: () => boolean) => Promise<WebSocket>} open returns a new socket, unless it is not wanted any
 *   more; an error with `permanent` ends the attempts
 * @property {() => void} onOpen
 * @property {(frame: any) => void} onPush
 * @property {() => void} onState
 */
/** @typedef {{resolve: (result: any) => void, reject: (error: RequestError) => void, timer: any}} Pending */
export declare class Connection {
    #private;
    /**
     * "offline": not wanted. "connecting": wanted, but not open. "online": open.
     * @type {ConnectionState}
     */
    state: ConnectionState;
    /** The reason of the state, for people; often empty. */
    detail: string;
    /**
     * @param {object} parts
     * @param {ConnectionHooks} parts.hooks
     * @param {Clock} [parts.clock]
     * @param {() => number} [parts.random]
     * @param {Partial<Record<keyof typeof TIMING, number>>} [parts.timing] in ms
     * @param {(message: string) => void} [parts.log]
     */
    constructor({ hooks, clock, random, timing, log }: {
        hooks: ConnectionHooks;
        clock?: Clock;
        random?: () => number;
        timing?: Partial<Record<keyof typeof TIMING, number>>;
        log?: (message: string) => void;
    });
    /** Connects and stays connected until stop. */
    start(): void;
    /** Closes the socket and stays away until start. */
    stop(detail?: string): void;
    /**
     * To be called when the network may have changed: ends a waiting time, and replaces a connection that does not
     * answer. A connection over which something came in the last quietMs is not doubted.
     * @param {number} [quietMs]
     */
    retryNow(quietMs?: number): void;
    /**
     * Sends a request and resolves to its result, or rejects with a RequestError: the server's own, TIMEOUT,
     * DISCONNECTED, or TOO_LARGE for a frame over the limit. A request that failed may have been carried out all the
     * same.
     * @param {string} action @param {object} [fields] @param {number} [patienceMs] @returns {Promise<any>}
     */
    request(action: string, fields?: object, patienceMs?: number): Promise<any>;
    /**
     * Sends what the server does not answer. Whether it arrives is not known.
     * @param {string} action @param {object} fields
     */
    tell(action: string, fields: object): void;
}
/** The error of a request without a connection. */
export declare function disconnected(): RequestError;
