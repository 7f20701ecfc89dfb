import type { Channel, ChannelMessage } from "./channel.js";
import type { ConversationKey, StoreChange } from "./types.js";
import type { Model } from "./model.js";
export type LeaderHooks = {
    perform: (method: string, args: any[]) => Promise<any>;
    /**
     * resolves when all that came is stored
     */
    settled: () => Promise<void>;
    /**
     * what the other tabs have on screen
     */
    show: (keys: ConversationKey[]) => void;
    /**
     * another tab leads
     */
    superseded: () => void;
};
/**
 * @import { Channel, ChannelMessage } from "./channel.js"
 * @import { ConversationKey, ConversationRecord, Member, Message, StoreChange } from "./types.js"
 * @import { Model } from "./model.js"
 */
/**
 * @typedef {object} LeaderHooks
 * @property {(method: string, args: any[]) => Promise<any>} perform
 * @property {() => Promise<void>} settled resolves when all that came is stored
 * @property {(keys: ConversationKey[]) => void} show what the other tabs have on screen
 * @property {() => void} superseded another tab leads
 */
export declare class Leader {
    #private;
    /**
     * @param {object} parts
     * @param {Channel} parts.channel
     * @param {number} parts.term
     * @param {Model} parts.model
     * @param {LeaderHooks} parts.hooks
     * @param {(tabId: string, signal: AbortSignal) => Promise<void>} parts.watch resolves when a tab ended
     * @param {(message: string) => void} parts.log
     */
    constructor({ channel, term, model, hooks, watch, log }: {
        channel: Channel;
        term: number;
        model: Model;
        hooks: LeaderHooks;
        watch: (tabId: string, signal: AbortSignal) => Promise<void>;
        log: (message: string) => void;
    });
    /** Says who leads; the others introduce themselves. */
    announce(): void;
    close(): void;
    /**
     * Notes what is stored of the model.
     * @param {StoreChange} change
     */
    kept({ forget, messages, conversations }: StoreChange): void;
    /**
     * Messages of others have come. The other tabs hear of it with or after the messages themselves.
     * @param {string} conversationId @param {number[]} seqs
     */
    news(conversationId: string, seqs: number[]): void;
    /** Something changed; the others are told once all that came is stored. */
    changed(): void;
    /** @param {ChannelMessage} message */
    receive(message: ChannelMessage): void;
}
