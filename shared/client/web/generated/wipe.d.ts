import type { Store } from "./types.js";
/**
 * Wipes a store. A tab that leads and has not heard of it yet cannot write any more, for the store is claimed; it may
 * claim it in turn before it hears.
 * @param {Store} store
 * @param {number} atLeast see claim of the store
 */
export declare function wipe(store: Store, atLeast: number): Promise<void>;
/** @param {unknown} error */
export declare function unlessFenced(error: unknown): void;
