export type Kept = {
    stamp: string;
    value: any;
};
/** What is kept of a reading: stamp is what it was made of. @typedef {{stamp: string, value: any}} Kept */
export declare class Views {
    #private;
    /** @param {number} limit how many readings are kept; one that is dropped is made of new objects the next time */
    constructor(limit: number);
    /**
     * Gives what make does. While the stamp is the same make is not called again, and what is equal to a part
     * of the last value is that part.
     * @template T
     * @param {string} name
     * @param {string} stamp
     * @param {() => T} make
     * @returns {T}
     */
    get<T>(name: string, stamp: string, make: () => T): T;
}
/**
 * Gives next, made of the parts of last that are equal to its own; last itself if all is.
 * @param {any} last
 * @param {any} next
 * @returns {any}
 */
export declare function reuse(last: any, next: any): any;
/** @template T @param {T} value @returns {T} */
export declare function frozen<T>(value: T): T;
