// Runs before the page: this tab of alice had a group open, her device is new, and the server does not let it in yet.

const server = globalThis.server;
const group = server.group("Trip", ["alice", "bob"]);
server.post("bob", { conversationId: group }, "hello");
server.admit = () => false;
sessionStorage.setItem("inorder.open/alice", group);
