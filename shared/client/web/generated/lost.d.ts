import type { Model } from "./model.js";
import type { Entry, Lost, Message } from "./types.js";
/**
 * @import { Model } from "./model.js"
 * @import { Entry, Lost, Message } from "./types.js"
 */
export declare class LostMessages {
    #private;
    /**
     * @param {object} parts
     * @param {Model} parts.model whose lost and doubtful it keeps
     * @param {string} parts.userId
     * @param {{lost: number, lostOfOthers: number}} parts.limits how many are kept, the last: own ones, and those of others
     */
    constructor({ model, userId, limits }: {
        model: Model;
        userId: string;
        limits: {
            lost: number;
            lostOfOthers: number;
        };
    });
    /** What is lost and what may be. */
    all(): Lost[];
    /** @param {Lost} lost */
    isMine({ message }: Lost): boolean;
    /**
     * From here on all that is held is in doubt, also what was answered and has not come yet.
     * @param {Entry[]} entries of the outbox
     */
    doubt(entries: Entry[]): void;
    /**
     * What is in doubt and not there again is lost. What the user wrote of it is put among the entries as refused, to be
     * sent again, unless the group itself is gone. Gives these entries.
     * @returns {Entry[]}
     */
    settle(): Entry[];
    /**
     * Puts messages aside for good. Says whether there were any.
     * @param {(lost: Lost) => boolean} isAside
     */
    drop(isAside: (lost: Lost) => boolean): boolean;
}
/**
 * What tells a message from all others in every world of the server.
 * @param {Message} message
 */
export declare function identityOf({ senderId, clientMsgId, messageId }: Message): string;
