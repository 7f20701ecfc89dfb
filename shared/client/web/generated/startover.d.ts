import type { Parts } from "./engine.js";
import type { Ledger } from "./ledger.js";
import type { ConversationKey, Lost, StoreChange } from "./types.js";
/**
 * @import { Parts } from "./engine.js"
 * @import { Ledger } from "./ledger.js"
 * @import { ConversationKey, Lost, StoreChange } from "./types.js"
 */
export declare class StartOver {
    #private;
    /** Another object once all is begun anew: what belongs to an earlier one is void. */
    world: {};
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /**
     * Whether the server knows less of a conversation than we held when we asked, or something else.
     * @param {{conversations: any[], heads?: any[], full: boolean}} changes
     * @param {Map<string, number>} held by conversationId, up to which seq
     */
    isContradicted({ conversations, heads, full }: {
        conversations: any[];
        heads?: any[];
        full: boolean;
    }, held: Map<string, number>): boolean;
    /**
     * Whether one of these entries of the server is held here as another one.
     * @param {Ledger | undefined} ledger @param {{seq: number, messageId: string}[]} entries
     */
    isReplaced(ledger: Ledger | undefined, entries: {
        seq: number;
        messageId: string;
    }[]): boolean;
    /** Forgets what is held, and asks for all of it. */
    begin(): void;
    /**
     * Has what the server turned out to have lost shown from here on. Returns what is to be stored.
     * @returns {StoreChange}
     */
    settle(): StoreChange;
    /**
     * Puts what the server has lost of a conversation aside.
     * @param {ConversationKey} key
     */
    discard(key: ConversationKey): void;
    /**
     * Puts lost messages aside for good.
     * @param {(lost: Lost) => boolean} isAside
     */
    drop(isAside: (lost: Lost) => boolean): void;
}
