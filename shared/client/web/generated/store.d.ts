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
    /** @param {StoreChange} change @param {number} [term] */
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
    /**
     * @param {IDBDatabase} db use open
     * @param {() => Promise<IDBDatabase>} reopen opens it again
     */
    constructor(db: IDBDatabase, reopen: () => Promise<IDBDatabase>);
    /**
     * Opens the device's database. Rejects if the browser has none, if it does not answer in time, and if a tab with an
     * older version of this code does not let go of it.
     * @param {string} userId @param {string} deviceId @param {IDBFactory} [factory] @param {number} [patienceMs]
     */
    static open(userId: string, deviceId: string, factory?: IDBFactory, patienceMs?: number): Promise<IndexedDBStore>;
    /** @param {number} atLeast */
    claim(atLeast: number): Promise<number>;
    /** @returns {Promise<Saved>} */
    load(): Promise<Saved>;
    /** @param {StoreChange} change @param {number} [term] */
    commit(change: StoreChange, term?: number): Promise<void>;
    close(): void;
}
