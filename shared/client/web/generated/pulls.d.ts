import { Places } from "./places.js";
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
    places: Places;
};
/**
 * One per connection; due does not include the random part, page is the last page that is read again, and places are for
 * pulls.
 * @typedef {{pulls: Map<Ledger, Promise<void>>, waits: Map<Ledger, {timer: any, due: number}>, rechecks: Map<Ledger, Promise<void>>, page: Promise<void>, places: Places}} Turn
 */
export declare class Pulls {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** A connection is there; the pulls of an earlier one are void. */
    start(): void;
    stop(): void;
    /**
     * Pulls these, from the last held entry on, which shows whether the server has it, too. If one fails the others are
     * pulled all the same. Rejects with the first error. What is in doubt is read again after that, which may be long:
     * what else changes is heard of meanwhile.
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
