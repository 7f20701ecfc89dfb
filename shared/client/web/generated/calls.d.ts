import type { OwnPositions } from "./facts.js";
import type { Role } from "./role.js";
import type { Clock, OutboxEntry } from "./types.js";
export type Call = {
    method: string;
    args: any[];
    isTimed: boolean;
};
export declare class Calls {
    #private;
    /**
     * @param {Role} role of this tab
     * @param {object} options
     * @param {Clock} options.clock
     * @param {(message: string) => void} options.log
     * @param {number} options.callMs how long a tab waits for what the server has to be asked for
     */
    constructor(role: Role, { clock, log, callMs }: {
        clock: Clock;
        log: (message: string) => void;
        callMs: number;
    });
    /**
     * Has the leader do something, see perform of the engine. Returns its answer, however late.
     * @param {string} method @param {any[]} args @returns {Promise<any>}
     */
    ask(method: string, ...args: any[]): Promise<any>;
    /**
     * As ask, where nobody waits.
     * @param {string} method @param {any[]} args
     */
    do(method: string, ...args: any[]): void;
    /**
     * As ask, for what the server has to be asked for: there is an answer in time, or none.
     * @param {string} method @param {any[]} args
     */
    inquire(method: string, ...args: any[]): Promise<any>;
    /**
     * Puts an entry into the outbox, and resolves once it is stored. Where this tab leads, the engine stores it. Where it
     * does not, it is in the shared store before the leader hears of it: whatever becomes of the two tabs, the next
     * leader finds it there.
     * @param {OutboxEntry} entry
     */
    accept(entry: OutboxEntry): Promise<void>;
    /**
     * Raises what the user has read or cleared in a conversation; shown at once.
     * @param {string} conversationId @param {OwnPositions} positions
     */
    raise(conversationId: string, positions: OwnPositions): void;
    /** Has the leader look whether its connection lives; where nobody leads now, it need not be done later. */
    doubtConnection(/** @type {number} */ quietMs: number): void;
    /** Shows in the model what this tab asked for and the leader has not told of yet. */
    overlay(): void;
    /** Asks for all that is not answered. */
    askAll(): void;
    /** @param {number} id @param {any} result */
    resolve(id: number, result: any): void;
    /** @param {number} id @param {{code: string, message: string}} error */
    reject(id: number, error: {
        code: string;
        message: string;
    }): void;
    /**
     * Ends: what is not answered, and what is asked for from here on, rejects with this.
     * @param {{code: string, message: string}} why
     */
    end(why: {
        code: string;
        message: string;
    }): void;
}
