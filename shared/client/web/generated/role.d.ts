import { Model } from "./model.js";
import type { Options } from "./client.js";
import type { Clock, ConnectionState, ConversationKey, Entry, Store } from "./types.js";
/**
 * @import { Call } from "./calls.js"
 * @import { ChannelMessage } from "./channel.js"
 * @import { Options } from "./client.js"
 * @import { Tabs } from "./tabs.js"
 * @import { Clock, ConnectionState, ConversationKey, Entry, Saved, Store } from "./types.js"
 */
/** How long a tab waits for the one that leads, in ms. */
declare const TAB_TIMING: Readonly<{
    beatMs: 2000;
    silentBeats: 4;
    helloMs: 1000;
    callMs: 15000;
}>;
export type TabTiming = Partial<Record<keyof typeof TAB_TIMING, number>>;
export type RoleHooks = {
    /**
     * what is shown may have changed
     */
    changed: () => void;
    /**
     * these messages of others have come
     */
    news: (conversationId: string, seqs: number[]) => void;
};
export declare class Role {
    #private;
    /**
     * Makes one that does nothing before start.
     * @param {Options & {store: Store, storeError?: Error | null, clock: Clock, log: (message: string) => void}} options
     * @param {RoleHooks} hooks
     */
    constructor(options: Options & {
        store: Store;
        storeError?: Error | null;
        clock: Clock;
        log: (message: string) => void;
    }, hooks: RoleHooks);
    /** What this tab knows; another one whenever its role changes. */
    get model(): Model;
    /** @returns {ConnectionState} */
    get state(): ConnectionState;
    get detail(): string;
    get storeError(): Error | null;
    get leads(): boolean;
    get hasEnded(): boolean;
    /** Begins, and resolves once there is something to show. */
    start(): Promise<void>;
    /**
     * Ends this tab's part, or with forget that of all tabs, and wipes what is stored.
     * @param {boolean} forget
     */
    close(forget: boolean): Promise<void>;
    /** @param {boolean} offline */
    setOffline(offline: boolean): void;
    /** @param {ConversationKey | null} key */
    show(key: ConversationKey | null): void;
    /**
     * Has it do something, and gives its answer.
     * @param {string} method
     * @param {any[]} args
     * @param {{patienceMs?: number, now?: boolean}} [options]
     * @returns {Promise<any>}
     */
    call(method: string, args: any[], options?: {
        patienceMs?: number;
        now?: boolean;
    }): Promise<any>;
    /**
     * As call, where nobody waits.
     * @param {string} method
     * @param {any[]} args
     */
    do(method: string, ...args: any[]): void;
    /**
     * As call, for what the server has to be asked for: there is an answer in time, or none.
     * @param {string} method
     * @param {any[]} args
     */
    inquire(method: string, ...args: any[]): Promise<any>;
    /**
     * Puts an entry into the outbox, and resolves once it is stored. Where this tab leads, the engine stores it. Where
     * it does not, it is in the shared store before the leader hears of it: whatever becomes of the two tabs, the next
     * leader finds it there.
     * @param {Entry} entry
     */
    accept(entry: Entry): Promise<void>;
    /**
     * Raises what the user has read or cleared in a conversation; shown at once.
     * @param {string} conversationId
     * @param {{readSeq?: number, clearedSeq?: number}} seqs
     */
    raise(conversationId: string, seqs: {
        readSeq?: number;
        clearedSeq?: number;
    }): void;
}
export {};
