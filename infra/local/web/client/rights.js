// Who may do what in a group, as the server decides it; here it only decides which buttons are shown.

/** The roles, the mightiest first. */
export const ROLES = ["owner", "admin", "member"];

/**
 * Whether a member with this role may do the action: "send", "leave", "add", "remove", "setTitle",
 * "setRole", "dissolve" or "recall" (another's message). For remove and recall, target is the role of
 * the member concerned, or of a sender who is a member no more "member".
 * @param {string | null} role
 * @param {string} action
 * @param {string} [target]
 */
export function may(role, action, target = "member") {
  switch (action) {
    case "send":
    case "leave":
      return role !== null && ROLES.includes(role);
    case "add":
    case "setTitle":
      return role === "owner" || role === "admin";
    case "remove":
    case "recall":
      return (role === "owner" && target !== "owner") || (role === "admin" && target === "member");
    case "setRole":
    case "dissolve":
      return role === "owner";
    default:
      return false;
  }
}
