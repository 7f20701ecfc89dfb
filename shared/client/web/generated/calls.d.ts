import type { Clock } from "./types.js";
export type Call = {
    method: string;
    args: any[];
    isTimed: boolean;
};
export declare class Calls {
    #private;
    /**
     * @param {object} parts
     * @param {Clock} parts.clock
     * @param {(id: number, call: Call) => void} parts.ask asks whoever leads, if there is anyone; resolve and reject
     *   take the answer
     */
    constructor({ clock, ask }: {
        clock: Clock;
        ask: (id: number, call: Call) => void;
    });
    /** An id for what needs no answer. */
    newId(): number;
    /**
     * @param {string} method
     * @param {any[]} args
     * @param {object} [options]
     * @param {number} [options.patienceMs] how long it waits for an answer
     * @param {boolean} [options.now] false leaves it to the next askAll
     * @returns {Promise<any>}
     */
    make(method: string, args: any[], { patienceMs, now }?: {
        patienceMs?: number;
        now?: boolean;
    }): Promise<any>;
    /** The calls that are not answered, oldest first. */
    waiting(): Call[];
    /** Asks for all that is not answered. */
    askAll(): void;
    /**
     * @param {number} id
     * @param {any} result
     */
    resolve(id: number, result: any): void;
    /**
     * @param {number} id
     * @param {Error} error
     */
    reject(id: number, error: Error): void;
    /** @param {() => Error} errorOf */
    rejectAll(errorOf: () => Error): void;
}
