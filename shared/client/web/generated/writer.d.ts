import type { EngineHooks, Parts } from "./engine.js";
import type { Ledger } from "./ledger.js";
import type { Store, StoreChange } from "./types.js";
export declare class Writer {
    #private;
    /** Whether the engine has ended: nothing is written any more but new entries of the outbox. */
    isHalted: boolean;
    /**
     * @param {Parts} parts @param {Store} store
     * @param {number} term the one that the store returned when it was claimed
     * @param {EngineHooks} hooks
     */
    constructor(parts: Parts, store: Store, term: number, hooks: EngineHooks);
    /** Resolves when all that came is stored. */
    settled(): Promise<void>;
    /**
     * Writes a change. After a write that failed no other follows: what is stored is complete up to there, and no later
     * cursor passes over what is missing.
     * @param {StoreChange} change
     * @param {number | null} [term] null for what any tab may write: a new entry of the outbox
     */
    commit(change: StoreChange, term?: number | null): Promise<void>;
    /**
     * Writes what is known of a conversation besides its messages.
     * @param {Ledger} ledger
     */
    keep(ledger: Ledger): void;
}
