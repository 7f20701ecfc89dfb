import type { Saved, Store, StoreChange } from "./types.js";
/** Another tab has claimed the store since. */
export declare class FencedError extends Error {
    constructor();
}
/**
 * Keeps everything in memory, for tests and for browsers that refuse IndexedDB.
 * @implements {Store}
 */
export declare class MemoryStore implements Store {
    #private;
    shared: boolean;
    /** @param {number} atLeast */
    claim(atLeast: number): Promise<number>;
    /** @returns {Promise<Saved>} */
    load(): Promise<Saved>;
    /**
     * @param {StoreChange} change
     * @param {number} [term]
     */
    commit(change: StoreChange, term?: number): Promise<void>;
    close(): void;
}
/**
 * Keeps everything in one IndexedDB database per user and device, which the tabs of an origin share.
 * @implements {Store}
 */
export declare class IndexedDBStore implements Store {
    #private;
    shared: boolean;
    /** @param {IDBDatabase} db use open */
    constructor(db: IDBDatabase);
    /**
     * Opens the device's database. Rejects where the browser offers none, or if a tab with an older version
     * of this code does not let go of it within a few seconds.
     * @param {string} userId
     * @param {string} deviceId
     * @param {IDBFactory} [factory]
     */
    static open(userId: string, deviceId: string, factory?: IDBFactory): Promise<IndexedDBStore>;
    /** @param {number} atLeast */
    claim(atLeast: number): Promise<number>;
    /** @returns {Promise<Saved>} */
    load(): Promise<Saved>;
    /**
     * @param {StoreChange} change
     * @param {number} [term]
     */
    commit(change: StoreChange, term?: number): Promise<void>;
    close(): void;
}
