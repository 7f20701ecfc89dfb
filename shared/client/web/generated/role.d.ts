import { Calls } from "./calls.js";
import { Engine } from "./engine.js";
import { Follower } from "./follower.js";
import { Model } from "./model.js";
import type { Options } from "./client.js";
import type { Clock, ConnectionState, ConversationKey, Store } from "./types.js";
/**
 * @import { ChannelMessage } from "./channel.js"
 * @import { Options } from "./client.js"
 * @import { Clock, ConnectionState, ConversationKey, Saved, Store } from "./types.js"
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
    /** What this tab knows; another one whenever its role changes. @type {Model} */
    model: Model;
    /** @type {Store} */
    store: Store;
    /** @type {Engine | null} if this tab leads */
    engine: Engine | null;
    /** @type {Follower | null} if another one may */
    follower: Follower | null;
    calls: Calls;
    /**
     * Makes a role that does nothing before start.
     * @param {Options & {store: Store, storeError?: Error | null, clock: Clock, log: (message: string) => void}} options
     * @param {RoleHooks} hooks
     */
    constructor(options: Options & {
        store: Store;
        storeError?: Error | null;
        clock: Clock;
        log: (message: string) => void;
    }, hooks: RoleHooks);
    /** @returns {ConnectionState} */
    get state(): ConnectionState;
    get detail(): string;
    get storeError(): Error | null;
    get leads(): boolean;
    /** Whether there are no other tabs that may lead. */
    get isAlone(): boolean;
    get hasEnded(): boolean;
    /** Begins, and resolves once there is something to show. */
    start(): Promise<void>;
    /**
     * Ends this tab's part. With forget, ends that of all tabs, and wipes what is stored.
     * @param {boolean} forget
     */
    close(forget: boolean): Promise<void>;
    /** @param {boolean} offline */
    setOffline(offline: boolean): void;
    /** @param {ConversationKey | null} key */
    show(key: ConversationKey | null): void;
    changed(): void;
}
export {};
