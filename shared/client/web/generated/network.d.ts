/**
 * Says when it is time to look whether the connection lives, and how long nothing must have been heard for
 * that, in ms. Gives what ends it.
 * @param {(quietMs: number) => void} doubt
 * @param {any} [scope] a window; where there is none nothing is said
 * @returns {() => void}
 */
export declare function watchNetwork(doubt: (quietMs: number) => void, scope?: any): () => void;
