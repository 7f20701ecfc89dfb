export declare const SLOW_MS = 3000;
export declare class Places {
    #private;
    /** @param {number} free */
    constructor(free: number);
    /**
     * Does work once there is a place for it, which is first come, first served. The place is free when work ends, or
     * calls what it is given.
     * @param {(leave: () => void) => Promise<void>} work
     */
    take(work: (leave: () => void) => Promise<void>): Promise<void>;
}
