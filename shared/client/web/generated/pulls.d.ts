import type { Ledger } from "./ledger.js";
import type { Clock } from "./types.js";
export type PullHooks = {
    /**
     * called before each pull
     */
    begin: (ledger: Ledger) => void;
    request: (action: string, fields: object) => Promise<any>;
    /**
     * takes a page in; up to held the ledger was complete when it was asked for
     */
    page: (ledger: Ledger, page: any, held: number) => void;
    /**
     * over how long the pulls of all who hear of the same gap are spread
     */
    spreadMs: (ledger: Ledger) => number;
    /**
     * tells whether the ledger is still in use
     */
    isCurrent: (ledger: Ledger) => boolean;
};
export type Turn = {
    pulls: Map<Ledger, Promise<void>>;
    waits: Map<Ledger, {
        timer: any;
        due: number;
    }>;
};
/**
 * @typedef {object} PullHooks
 * @property {(ledger: Ledger) => void} begin called before each pull
 * @property {(action: string, fields: object) => Promise<any>} request
 * @property {(ledger: Ledger, page: any, held: number) => void} page takes a page in; up to held the ledger was complete when it was asked for
 * @property {(ledger: Ledger) => number} spreadMs over how long the pulls of all who hear of the same gap are spread
 * @property {(ledger: Ledger) => boolean} isCurrent tells whether the ledger is still in use
 */
/** @typedef {{pulls: Map<Ledger, Promise<void>>, waits: Map<Ledger, {timer: any, due: number}>}} Turn one per connection; due is without what chance added */
export declare class Pulls {
    #private;
    /**
     * @param {object} parts
     * @param {PullHooks} parts.hooks
     * @param {Clock} parts.clock
     * @param {() => number} parts.random
     * @param {{backoffBaseMs: number, backoffCapMs: number, gapWaitMs: number}} parts.timing
     * @param {number} parts.limit how many entries to ask for at a time
     * @param {(message: string) => void} parts.log
     */
    constructor({ hooks, clock, random, timing, limit, log }: {
        hooks: PullHooks;
        clock: Clock;
        random: () => number;
        timing: {
            backoffBaseMs: number;
            backoffCapMs: number;
            gapWaitMs: number;
        };
        limit: number;
        log: (message: string) => void;
    });
    /** A connection is there; the pulls of an earlier one are void. */
    start(): void;
    stop(): void;
    /**
     * Pulls these, from the last entry held: it tells whether the server has it, too. One that fails does not keep
     * the others from being pulled. Rejects with the first error.
     * @param {Ledger[]} ledgers
     */
    all(ledgers: Ledger[]): Promise<void>;
    /**
     * Makes sure that a gap is pulled after a wait, unless pushes close it first. The wait is the longer by chance:
     * all members of a conversation hear of a gap at the same moment. One that is under way is not drawn anew.
     * @param {Ledger} ledger
     * @param {number} waitMs
     */
    mind(ledger: Ledger, waitMs: number): void;
}
