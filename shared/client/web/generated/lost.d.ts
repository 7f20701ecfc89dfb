import type { Model } from "./model.js";
import type { Lost, Message, OutboxEntry } from "./types.js";
/**
 * @import { Model } from "./model.js"
 * @import { Lost, Message, OutboxEntry } from "./types.js"
 */
export declare class LostMessages {
    #private;
    /**
     * @param {object} parts
     * @param {Model} parts.model its lost and doubtful are kept here
     * @param {string} parts.userId
     * @param {{lost: number, lostOfOthers: number}} parts.limits how many of the last are kept: own ones, and those of
     *   others
     */
    constructor({ model, userId, limits }: {
        model: Model;
        userId: string;
        limits: {
            lost: number;
            lostOfOthers: number;
        };
    });
    /** What is lost, and what may be. */
    all(): Lost[];
    /** @param {Lost} lost */
    isMine({ message }: Lost): boolean;
    /**
     * All that is held is in doubt from here on, also what was answered and has not come yet.
     * @param {OutboxEntry[]} entries of the outbox
     */
    doubt(entries: OutboxEntry[]): void;
    /**
     * What is in doubt and did not come again is lost. What the user wrote of it is put into the outbox as refused, to be
     * sent again, unless the group itself is gone. Returns these outbox entries.
     * @returns {OutboxEntry[]}
     */
    settle(): OutboxEntry[];
    /**
     * Puts messages aside for good. Returns whether there were any.
     * @param {(lost: Lost) => boolean} isAside
     */
    drop(isAside: (lost: Lost) => boolean): boolean;
}
/**
 * Identifies a message, also after the server was restored.
 * @param {Message} message
 */
export declare function identityOf({ senderId, clientMsgId, messageId }: Message): string;
