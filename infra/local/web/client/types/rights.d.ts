/** The roles, the mightiest first. */
export declare const ROLES: string[];
/**
 * Whether a member with this role may do the action: "send", "leave", "add", "remove", "setTitle",
 * "setRole", "dissolve" or "recall" (another's message). For remove and recall, target is the role of
 * the member concerned, or of a sender who is a member no more "member".
 * @param {string | null} role
 * @param {string} action
 * @param {string} [target]
 */
export declare function may(role: string | null, action: string, target?: string): boolean;
