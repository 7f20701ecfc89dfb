export type Kept = {
    stamp: string;
    value: any;
};
/** What is kept of a reading; stamp says what it was made of. @typedef {{stamp: string, value: any}} Kept */
export declare class Views {
    #private;
    /** @param {number} limit how many readings are kept; a dropped one is made of new objects the next time */
    constructor(limit: number);
    /**
     * Returns what make returns. make is not called again while the stamp is the same, and parts that equal those of the
     * last value are the same objects.
     * @template T
     * @param {string} name @param {string} stamp @param {() => T} make @returns {T}
     */
    get<T>(name: string, stamp: string, make: () => T): T;
}
/** @template T @param {T} value @returns {T} */
export declare function frozen<T>(value: T): T;
