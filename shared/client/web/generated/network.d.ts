/**
 * Calls doubt when the connection has to be checked unless something came over it in the last quietMs. Returns a
 * function that ends that.
 * @param {(quietMs: number) => void} doubt
 * @param {any} [scope] a window; without one nothing is watched
 * @returns {() => void}
 */
export declare function watchNetwork(doubt: (quietMs: number) => void, scope?: any): () => void;
