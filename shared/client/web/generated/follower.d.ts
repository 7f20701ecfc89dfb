import type { Channel, ChannelMessage } from "./channel.js";
import type { Clock, ConversationKey, Delta, Picture } from "./types.js";
/**
 * @import { Channel, ChannelMessage } from "./channel.js"
 * @import { Clock, ConversationKey, Delta, Picture } from "./types.js"
 */
export declare const FOLLOWER_TIMING: Readonly<{
    beatMs: 2000;
    silentBeats: 4;
}>;
export type FollowerHooks = {
    picture: (picture: Picture) => void;
    delta: (delta: Delta) => void;
    answer: (id: number, answer: {
        result?: any;
        error?: any;
    }) => void;
    /**
     * there is another leader
     */
    led: () => void;
    /**
     * the leader does not answer
     */
    silent: () => void;
};
/**
 * @typedef {object} FollowerHooks
 * @property {(picture: Picture) => void} picture
 * @property {(delta: Delta) => void} delta
 * @property {(id: number, answer: {result?: any, error?: any}) => void} answer
 * @property {() => void} led there is another leader
 * @property {() => void} silent the leader does not answer
 */
export declare class Follower {
    #private;
    /**
     * @param {object} parts
     * @param {Channel} parts.channel
     * @param {number} parts.term leaders of an earlier one are ignored
     * @param {ConversationKey | null} parts.key what is on screen
     * @param {() => boolean} parts.isVisible
     * @param {Clock} parts.clock
     * @param {Record<keyof typeof FOLLOWER_TIMING, number>} parts.timing
     * @param {FollowerHooks} parts.hooks
     */
    constructor({ channel, term, key, isVisible, clock, timing, hooks }: {
        channel: Channel;
        term: number;
        key: ConversationKey | null;
        isVisible: () => boolean;
        clock: Clock;
        timing: Record<keyof typeof FOLLOWER_TIMING, number>;
        hooks: FollowerHooks;
    });
    /** The highest term of a leader that was heard of. */
    get term(): number;
    close(): void;
    /** @param {ConversationKey | null} key */
    show(key: ConversationKey | null): void;
    /**
     * Asks the leader to do something; the hook answer receives its answer. A new leader has to be asked again.
     * @param {number} id @param {string} method @param {any[]} args
     */
    call(id: number, method: string, args: any[]): void;
    /** @param {ChannelMessage} message */
    receive(message: ChannelMessage): void;
}
