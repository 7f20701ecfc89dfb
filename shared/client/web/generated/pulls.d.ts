import type { Parts } from "./engine.js";
import type { Ledger } from "./ledger.js";
export type Turn = {
    pulls: Map<Ledger, Promise<void>>;
    waits: Map<Ledger, {
        timer: any;
        due: number;
    }>;
    rechecks: Map<Ledger, Promise<void>>;
    page: Promise<void>;
    free: number;
    queue: Array<() => void>;
};
/**
 * One per connection; due does not include the random part, page is the last page that is read again, and free are the
 * places for pulls, for which queue waits.
 * @typedef {{pulls: Map<Ledger, Promise<void>>, waits: Map<Ledger, {timer: any, due: number}>, rechecks: Map<Ledger, Promise<void>>, page: Promise<void>, free: number, queue: Array<() => void>}} Turn
 */
export declare class Pulls {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** A connection is there; the pulls of an earlier one are void. */
    start(): void;
    stop(): void;
    /**
     * Pulls these, from the last held entry on, which shows whether the server has it, too, and then reads again what is
     * in doubt, which may be long. If one fails the others are pulled all the same. Rejects with the first error.
     * @param {Ledger[]} ledgers
     */
    all(ledgers: Ledger[]): Promise<void>;
    /**
     * Makes sure that a gap is pulled after a wait, unless pushes close it first. A random part is added to the wait,
     * because all members of a conversation hear of a gap at the same moment. A wait that is under way stays.
     * @param {Ledger} ledger @param {number} waitMs
     */
    mind(ledger: Ledger, waitMs: number): void;
}
