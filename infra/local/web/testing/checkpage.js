// Drives the page as alice against the FakeServer at window.server, by what a person sees and clicks.
// Runs in a browser, hence no assertion library.

const server = globalThis.server;
const $ = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const lines = () => all("#messages > *").map((row) => row.querySelector(".text").textContent);
const rowOf = (text) => all("#messages > *").find((row) => row.querySelector(".text").textContent === text);
const isShown = (selector) => all(selector).some((node) => node.checkVisibility());

/** Checks the whole page; rejects with what is wrong. */
export async function checkPage() {
  await until("being online", () => $("#app").dataset.connection === "online");
  await checkSingle();
  await checkRevisions();
  await checkGroup();
  await checkRights();
  await checkClosed();
  await checkHistory();
}

async function checkSingle() {
  type("#to", "bob");
  click("#start");
  say("hello <b>bob</b>");
  await until("the message", () => $("#messages > [data-seq='1'][data-state='sent']"));
  equal(lines(), ["hello <b>bob</b>"], "text is text");
  await until("one tick", () => $("#messages .mark").textContent === "✓");
  server.post("bob", { to: "alice" }, "hi alice");
  await until("the answer", () => lines().length === 2);
  server.act("bob", "ack", { conversationId: keyOf("bob"), deliveredSeq: 2 });
  await until("two ticks", () => $("#messages > [data-receipt='delivered'] .mark")?.textContent === "✓✓");
  server.act("bob", "ack", { conversationId: keyOf("bob"), readSeq: 2 });
  await until("the mark of having read", () => $("#messages > [data-receipt='read'] .delivery")?.textContent === "✓✓read");
  server.post("carol", { to: "alice" }, "psst");
  await until("a badge", () => conversation("carol")?.dataset.unread === "1");
  equal(conversation("carol").querySelector(".badge").textContent, "1", "the badge counts");
  equal(document.title, "(1) Inorder", "the window's title counts too");
  equal(conversation("bob").dataset.unread, "0", "what is on screen is read");
  conversation("carol").click();
  await until("no badge", () => conversation("carol").dataset.unread === "0");
  await until("the server to know", () => server.conversations.get(keyOf("carol")).lines.get("alice").readSeq === 1);
  conversation("bob").click();
}

async function checkRevisions() {
  act("hi alice", "reply");
  equal($("#context-text").textContent, "Reply to bob: hi alice", "what is answered stands above");
  say("welcome");
  await until("the answer", () => rowOf("welcome")?.dataset.seq);
  equal(rowOf("welcome")?.querySelector(".quote").textContent, "bobhi alice", "the quote");
  rowOf("welcome")?.querySelector(".quote").click();
  await until("the jump", () => rowOf("hi alice").classList.contains("marked"));

  type("#text", "a draft");
  act("welcome", "edit");
  equal([$("#text").value, $("#send").textContent], ["welcome", "Save"], "the old text can be edited");
  say("welcome!");
  equal($("#text").value, "a draft", "the draft is back");
  equal(rowOf("welcome!").querySelector(".revision").textContent, "saving …", "an edit is shown at once");
  await until("the edit", () => !$("[data-revision]"));
  equal(rowOf("welcome!").querySelector(".edited").textContent, "edited", "and marked as such");
  type("#text", "");
  act("welcome!", "edit");
  press("#text", "Escape");
  equal([$("#text").value, $("#context").hidden], ["", true], "Escape ends an edit");

  server.windowMs = 0;
  act("welcome!", "recall");
  await until("the refusal", () => rowOf("welcome!")?.querySelector("[data-revision='failed']")?.textContent.includes("cannot be recalled any more"));
  rowOf("welcome!").querySelector(".dismiss").click();
  server.windowMs = Infinity;
  await until("no refusal", () => !$("[data-revision]"));
  act("welcome!", "recall");
  await until("the recall", () => $("#messages > [data-recalled]"));
  equal(lines(), ["hello <b>bob</b>", "hi alice", "This message was recalled."], "what is recalled is gone");
  equal($("#messages > [data-recalled] .more").hidden, true, "nothing more is done to it");
  equal(menuOf("hi alice"), ["reply", "copy"], "what is done to another's message");
}

async function checkGroup() {
  $("#new-group").open = true;
  type("#group-title", "Trip");
  type("#group-members", "bob, carol, bob");
  click("#group-create");
  await until("the group", () => $("#messages > .event[data-seq='1']"));
  equal(lines(), ["You made the group “Trip” with bob and carol"], "its first line");
  await until("how many they are", () => $("#subtitle").textContent === "3 members");
  say("hello all");
  await until("the message", () => $("#messages > [data-seq='2']"));
  const id = conversation("Trip").dataset.conversation;
  server.act("bob", "ack", { conversationId: id, readSeq: 2 });
  await until("a partial mark", () => rowOf("hello all")?.querySelector(".mark").textContent === "✓ 1/2");
  equal(rowOf("hello all").querySelector(".delivery").title, "Read by bob", "who it was");
  act("hello all", "receipts");
  await until("the readers", () => $("#readers-list").textContent === "Read by bob.");
  click("#readers-close");
  server.act("bob", "send", { conversationId: id, messageType: "text", text: "rude" });
  await until("bob's message", () => rowOf("rude"));
  equal(menuOf("rude"), ["reply", "recall", "copy"], "an owner recalls what others wrote");
}

async function checkRights() {
  click("#details-open");
  await until("the roster", () => all("#roster [data-member]").length === 3);
  equal(actsOf("alice"), [], "nothing is done to oneself");
  equal(actsOf("bob"), ["admin", "owner", "remove"], "what an owner does to a member");
  click("[data-member='bob'] [data-act='admin']");
  await until("bob the admin", () => $("[data-member='bob']").dataset.role === "admin");
  equal(actsOf("bob"), ["member", "owner", "remove"], "what an owner does to an admin");
  type("#add-members", "dave");
  click("#add");
  await until("dave", () => $("[data-member='dave']"));
  click("[data-member='carol'] [data-act='remove']");
  equal($("[data-member='carol'] [data-act='remove']").textContent, "Really remove?", "it asks first");
  click("[data-member='carol'] [data-act='remove']");
  await until("carol gone", () => !$("[data-member='carol']"));
  click("[data-member='bob'] [data-act='owner']");
  click("[data-member='bob'] [data-act='owner']");
  await until("bob the owner", () => $("[data-member='bob']").dataset.role === "owner");
  equal([actsOf("bob"), actsOf("dave"), isShown("#dissolve"), isShown("#title-form")], [[], ["remove"], false, true], "what an admin does");
  type("#new-title", "Journey");
  click("#title-save");
  await until("the title", () => $("#title").textContent === "Journey");
  const id = conversation("Journey").dataset.conversation;
  server.act("bob", "setRole", { conversationId: id, userId: "alice", role: "member" });
  click("#details-open");
  await until("alice a member", () => $("[data-member='alice']").dataset.role === "member");
  equal([actsOf("dave"), isShown("#title-form"), isShown("#add-form"), isShown("#leave-group")], [[], false, false, true], "what a member does");
  click("#details-close");
}

async function checkClosed() {
  const id = conversation("Journey").dataset.conversation;
  server.act("bob", "removeMembers", { conversationId: id, members: ["alice"] });
  await until("the end of it", () => !isShown("#composer") && $("#closed").textContent.startsWith("You are not a member"));
  equal(lines().at(-1), "bob removed you", "the last line");
  server.act("bob", "addMembers", { conversationId: id, members: ["alice"] });
  await until("the composer", () => isShown("#composer"));
  server.act("bob", "dissolve", { conversationId: id });
  await until("the end for all", () => $("#closed").textContent.startsWith("This group was dissolved"));
  equal(isShown("#composer"), false, "nothing can be written");

  const notices = server.system("order:1", ["alice"], "Your order");
  server.post("system", { conversationId: notices }, "It is on its way.", { messageType: "system" });
  await until("the notice", () => conversation("Your order"));
  conversation("Your order").click();
  equal([lines(), isShown("#composer")], [["It is on its way."], false], "a notice is read only");

  server.refuse = ({ action }) => (action === "createGroup" ? { code: "LIMIT", message: "too many", retryable: false } : undefined);
  $("#new-group").open = true;
  type("#group-title", "Crowd");
  click("#group-create");
  await until("the refusal", () => $("#messages > [data-state='failed'] .failure")?.textContent.startsWith("failed: too many"));
  click("#messages .remove");
  await until("nothing left of it", () => $("#app").dataset.view === "list" && !conversation("Crowd"));
  server.refuse = () => undefined;
}

async function checkHistory() {
  for (let i = 1; i <= 450; i++) server.post("erin", { to: "alice" }, `line ${i}`, i === 400 ? { replyTo: { seq: 20, messageId: `id-${keyOf("erin")}-20` } } : {});
  server.latency = () => 0;
  await until("erin", () => conversation("erin")?.dataset.unread === "450");
  conversation("erin").click();
  await until("the end of it", () => lines().at(-1) === "line 450");
  equal([lines().length < 450, $("#earlier").hidden], [true, false], "not all of it at once");
  rowOf("line 400")?.querySelector(".quote").click();
  await until("the jump", () => rowOf("line 20")?.classList.contains("marked"));
  equal(lines().length >= 431, true, "everything in between is there");
  click("#details-open");
  click("#clear");
  equal($("#clear").textContent, "Hide all messages for me?", "it asks first");
  click("#clear");
  await until("an empty conversation", () => lines().length === 0);
}

function conversation(title) {
  return all("[data-conversation]").find((node) => node.querySelector(".name").textContent === title);
}

function keyOf(peer) {
  return [...server.conversations.keys()].find((id) => id.startsWith("single:") && id.includes(`.${peer}`));
}

function click(selector) {
  if (!isShown(selector)) throw new Error(`${selector} is not there to click on`);
  $(selector).click();
}

function type(selector, text) {
  const field = $(selector);
  field.focus();
  field.value = text;
  field.dispatchEvent(new InputEvent("input", { bubbles: true }));
}

function press(selector, key) {
  $(selector).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}

function say(text) {
  type("#text", text);
  press("#text", "Enter");
}

function openMenu(text) {
  rowOf(text).querySelector(".more").click();
}

function act(text, name) {
  openMenu(text);
  click(`#menu [data-act='${name}']`);
  equal($("#menu").matches(":popover-open"), false, "the menu is closed again");
}

function menuOf(text) {
  openMenu(text);
  const acts = all("#menu [data-act]").map((item) => item.dataset.act);
  $("#menu").hidePopover();
  return acts;
}

function actsOf(member) {
  return all(`[data-member='${member}'] [data-act]`).filter((item) => !item.hidden).map((item) => item.dataset.act);
}

async function until(what, condition, limitMs = 30_000) {
  const end = performance.now() + limitMs;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`still waiting for ${what}; the page shows:\n${document.body.innerText}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

function equal(got, want, what) {
  const [a, b] = [got, want].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`);
}
