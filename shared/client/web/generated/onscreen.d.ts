import type { Parts } from "./engine.js";
import type { ConversationKey } from "./types.js";
/**
 * @import { Parts } from "./engine.js"
 * @import { ConversationKey } from "./types.js"
 */
export declare class OnScreen {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /**
     * Says which conversations are on screen, in whichever tab.
     * @param {Set<ConversationKey>} keys
     */
    show(keys: Set<ConversationKey>): void;
    /** @param {ConversationKey} key a current one */
    has(key: ConversationKey): boolean;
    /** Asks for what is not known yet. What fails is asked for again with the next catch-up. */
    lookUp(): Promise<void>;
}
