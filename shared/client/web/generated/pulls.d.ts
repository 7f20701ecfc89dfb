import type { Parts } from "./engine.js";
import type { Ledger } from "./ledger.js";
export type Turn = {
    pulls: Map<Ledger, Promise<void>>;
    waits: Map<Ledger, {
        timer: any;
        due: number;
    }>;
};
/** @typedef {{pulls: Map<Ledger, Promise<void>>, waits: Map<Ledger, {timer: any, due: number}>}} Turn one per connection; due is without what chance added */
export declare class Pulls {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
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
