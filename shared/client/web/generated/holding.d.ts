import type { Store, StoreChange } from "./types.js";
/**
 * Commits a change as store.commit does. If it holds a value that cannot be stored, all else is stored, in
 * an order that a crash does no harm to: the messages before what stands for them.
 * @param {Store} store
 * @param {StoreChange} change
 * @param {number | undefined} term
 * @param {(message: string) => void} log
 */
export declare function commitAll(store: Store, change: StoreChange, term: number | undefined, log: (message: string) => void): Promise<void>;
