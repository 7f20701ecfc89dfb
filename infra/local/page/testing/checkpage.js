// Drives the page as alice against the FakeServer at window.server, by what a person sees and clicks. Runs in a
// browser, so without an assertion library.

const server = globalThis.server;
const $ = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const lines = () => all("#messages > .message").map((row) => row.querySelector(".text").textContent);
const rowOf = (text) => all("#messages > .message").find((row) => row.querySelector(".text").textContent === text);
const isShown = (selector) => all(selector).some((node) => node.checkVisibility());

/** Checks the whole page; rejects with what is wrong. */
export async function checkPage() {
  const violations = [];
  document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => violations.push(violatedDirective));
  await until("being online", () => $("#app").dataset.connection === "online");
  await checkSingle();
  await checkRevisions();
  await checkGroup();
  await checkRights();
  await checkClosed();
  await checkHistory();
  await checkNames();
  await checkReading();
  await checkKeys();
  await checkFailure();
  await checkFollowing();
  await checkWindow();
  await checkLost();
  checkLabels();
  equal(violations, [], "nothing was against the page's own policy");
}

// Every control has a name for users who do not see it.
function checkLabels() {
  const named = (node) => node.textContent.trim() !== "" || node.getAttribute("aria-label") || node.labels?.length > 0;
  equal(all("button, input, textarea, a").filter((node) => !named(node) && node.checkVisibility()).map((node) => node.outerHTML), [], "names of what can be used");
  equal(all("button, input, textarea").length > 30, true, "there is much of it");
}

/** Checks what is different on a phone. */
export async function checkPhone() {
  await until("being online", () => $("#app").dataset.connection === "online");
  equal([isShown("#offline"), isShown("#second-device"), isShown("#leave")], [false, false, false], "no tools for developers at the top");
  click("#tools-open");
  await until("the tools", () => isShown("#offline") && isShown("#leave"));
  $("#tools").hidePopover();
  server.post("bob", { to: "alice" }, `A long word: ${"x".repeat(300)}`);
  await until("bob", () => conversation("bob"));
  conversation("bob").click();
  await until("the message", () => lines().length === 1);
  equal([isShown("#list"), isShown("#top"), isShown("#back")], [false, false, true], "one thing at a time");
  equal(document.activeElement.id, "title", "no keyboard comes up before one wants to write");
  equal(document.documentElement.scrollWidth <= innerWidth, true, "nothing is wider than the phone");
  type("#text", "one");
  equal(press("#text", "Enter"), true, "Enter makes a new line");
  equal(lines().length, 1, "and sends nothing");
  type("#text", "one\ntwo");
  const field = $("#text").getBoundingClientRect().height;
  equal(field > 55, true, `the field grows: ${field}px`);
  click("#send");
  await until("the message", () => rowOf("one\ntwo")?.dataset.seq === "2");
  click("#back");
  await until("the list", () => isShown("#list") && !isShown("#chat"));
}

/** Checks that a new device shows what was open before, see reopened.js. */
export async function checkReopened() {
  await until("being about to connect", () => $("#app").dataset.connection === "connecting");
  await until("what was open", () => isShown("#open") && isShown("#composer"));
  equal($("#title").textContent, "…", "its name is not known yet");
  server.admit = () => true;
  dispatchEvent(new Event("online"));
  await until("the message", () => lines().join() === "hello" && $("#title").textContent === "Trip");
  server.wipe();
  server.cutAll();
  await until("word of what the server lost", () => isShown("#lost"));
  equal([isShown("#open"), lines()], [true, ["hello"]], "what only this device has stays open");
  server.post("bob", { to: "alice" }, "to you");
  await until("bob", () => conversation("bob"));
  conversation("bob").click();
  await until("the message", () => rowOf("to you")?.dataset.seq === "1");
  server.wipe();
  server.cutAll();
  await until("word of what the server lost", () => isShown("#lost"));
  equal([$("#title").textContent, lines()], ["bob", ["to you"]], "a conversation of two stays open, too");
  await send("anew");
  await until("the conversation made anew", () => rowOf("anew")?.dataset.seq === "1");
}

/** Checks that the page works in a browser that lets it keep nothing, see nostorage.js. */
export async function checkNoStorage() {
  await until("being online", () => $("#app").dataset.connection === "online");
  equal($("#notice").textContent.startsWith("This browser does not let the page keep anything."), true, "it says so");
  type("#to", "bob");
  click("#start");
  await send("hello");
  await until("the message", () => rowOf("hello")?.dataset.seq === "1");
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
  await send("welcome");
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
  await until("the refusal", () => rowOf("welcome!")?.querySelector("[data-revision='failed']")?.textContent.includes("Not recalled: the time for that is over."));
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
  equal(rowOf("hello all").querySelector(".delivery").title, "Read by \u2068bob\u2069", "who it was");
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
  await until("the refusal", () => $("#messages > [data-state='failed'] .failure")?.textContent.startsWith("Not done: there are too many members, or too many new groups for one day."));
  click("#messages .remove");
  await until("nothing left of it", () => $("#app").dataset.view === "list" && !conversation("Crowd"));
  server.refuse = () => undefined;
}

async function checkHistory() {
  for (let i = 1; i <= 450; i++) server.post("erin", { to: "alice" }, `line ${i}`, i === 400 ? { replyTo: { seq: 20, messageId: `id-${keyOf("erin")}-20` } } : {});
  server.latency = () => 0;
  await until("erin", () => conversation("erin")?.dataset.unread === "450");
  conversation("erin").click();
  await until("all that is new", () => lines().length === 450);
  click("#down");
  await until("it being read", () => conversation("erin").dataset.unread === "0");
  conversation("bob").click();
  conversation("erin").click();
  equal(lines().at(-1), "line 450", "the end of it");
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

// Checks a name that overrides directions, and ends isolations that it did not begin.
async function checkNames() {
  const evil = "\u2069\u202Eevil";
  const { conversationId } = server.act("bob", "createGroup", { title: `x${evil}`, members: ["alice", evil, "שרה"] });
  server.act("bob", "addMembers", { conversationId, members: ["zoe"] });
  server.post(evil, { conversationId }, "https://example.org is it, and (https://example.com/a_(b)).");
  server.post("שרה", { conversationId }, "שלום, bob!");
  server.post("שרה", { conversationId }, "😅");
  await until("the group", () => conversation("xevil"));
  conversation("xevil").click();
  await until("its messages", () => lines().length === 5);
  equal(lines()[0], "bob made the group “xevil” with you, evil and שרה", "the event");
  const told = all("#messages .event .text")[0];
  const lefts = [...told.childNodes].map((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect().left;
  });
  equal([...lefts].sort((a, b) => a - b), lefts, "names stand where the sentence has them");
  equal(told.getBoundingClientRect().height < 30, true, "on one line, or this says nothing");
  const links = all("#messages a").map(({ textContent, href, target, rel, dir }) => [textContent, href, target, rel, dir]);
  equal(links, [["https://example.org", "https://example.org/", "_blank", "noopener noreferrer", "ltr"], ["https://example.com/a_(b)", "https://example.com/a_(b)", "_blank", "noopener noreferrer", "ltr"]], "links");
  equal([rowOf("😅").classList.contains("big"), rowOf("שלום, bob!").classList.contains("big")], [true, false], "an emoji alone is large");
  equal([rowOf("😅").classList.contains("follows"), rowOf("שלום, bob!").classList.contains("follows")], [true, false], "one goes on, the other begins");
  const sender = rowOf("שלום, bob!").querySelector(".sender");
  equal([sender.dir, sender.textContent, $("#title").dir, $("#text").dir], ["auto", "שרה", "auto", "auto"], "each runs as it wants");
  equal(all("#messages .day").map(({ textContent }) => textContent), ["Today"], "one day");
}

const scroll = () => $("#scroll");
const isInView = (node) => node.getBoundingClientRect().bottom <= scroll().getBoundingClientRect().bottom + 1;
const unreadOf = (peer) => Number(conversation(peer).dataset.unread);
const toldRead = (peer) => server.conversations.get(keyOf(peer)).lines.get("alice").readSeq;

async function checkReading() {
  for (let i = 1; i <= 60; i++) server.post("frank", { to: "alice" }, `number ${i}`);
  await until("frank", () => conversation("frank")?.dataset.unread === "60");
  conversation("frank").click();
  await until("his messages", () => lines().length === 60);
  equal($("#messages > .new-line").nextElementSibling.textContent.includes("number 1"), true, "the line above what is new");
  equal(isInView(rowOf("number 1")) && !isInView(rowOf("number 60")), true, "one begins at what is new");
  const seen = () => all("#messages > .message").filter(isInView).length;
  await until("what is in view being read", () => unreadOf("frank") === 60 - seen() && toldRead("frank") === seen());
  equal([isShown("#down"), $("#down-count").textContent], [true, String(60 - seen())], "the way to the rest");

  const before = seen();
  document.hasFocus = () => false;
  scroll().scrollTop += 300;
  await until("the scroll", () => seen() > before);
  await pause();
  equal(unreadOf("frank"), 60 - before, "nothing is read while one looks elsewhere");
  delete document.hasFocus;
  dispatchEvent(new FocusEvent("focus"));
  await until("it being read", () => toldRead("frank") === seen() && unreadOf("frank") === 60 - seen());

  const top = rowOf("number 5").getBoundingClientRect().top;
  server.post("frank", { to: "alice" }, "number 61");
  await until("the next", () => rowOf("number 61"));
  equal(rowOf("number 5").getBoundingClientRect().top, top, "what comes below does not move what one reads");
  server.act("frank", "edit", { conversationId: keyOf("frank"), seq: 1, messageId: `id-${keyOf("frank")}-1`, version: 1, text: "number 1\nis\nlonger\nnow" });
  await until("the edit", () => lines()[0].includes("longer"));
  equal(Math.abs(rowOf("number 5").getBoundingClientRect().top - top) < 1, true, "nor does what grows above");
  click("#down");
  await until("all being read", () => unreadOf("frank") === 0 && !isShown("#down"));
  equal(isInView(rowOf("number 61")), true, "the end is in view");

  await send("mine");
  equal($("#messages > .new-line"), null, "who answers has read it");
  document.hasFocus = () => false;
  for (let i = 62; i <= 99; i++) server.post("frank", { to: "alice" }, `number ${i}`);
  await until("more of it", () => rowOf("number 99"));
  equal([isInView(rowOf("number 62")), isInView(rowOf("number 99")), unreadOf("frank")], [true, false, 38], "what comes meanwhile is there to be read from its beginning");
  delete document.hasFocus;
  dispatchEvent(new FocusEvent("focus"));
  click("#down");
  await until("all being read", () => unreadOf("frank") === 0);

  act("mine", "edit");
  scroll().scrollTop = 0;
  await until("being above", () => isShown("#down"));
  say("mine, edited");
  await until("the edit", () => rowOf("mine, edited")?.querySelector(".edited").textContent === "edited");
  equal(scroll().scrollTop < 10, true, "saving an edit does not go to the end");
  equal([$("#spoken").childElementCount <= 20, $("#spoken").lastElementChild.textContent], [true, "frank: number 99"], "what was said");

  conversation("erin").click();
  for (let i = 451; i <= 800; i++) server.post("erin", { to: "alice" }, `line ${i}`);
  await until("her messages", () => lines().at(-1) === "line 800");
  equal([isInView(rowOf("line 451")), isInView(rowOf("line 800"))], [true, false], "so much at once is there to be read from its beginning, too");
  click("#down");
  await until("all being read", () => unreadOf("erin") === 0);
  conversation("bob").click();
  conversation("erin").click();
  equal([lines().length, isInView(rowOf("line 800")), isShown("#earlier")], [200, true, true], "what was read begins at its end");
  const first = all("#messages > .message")[5];
  scroll().scrollTop += first.getBoundingClientRect().top - scroll().getBoundingClientRect().top;
  const place = first.getBoundingClientRect().top;
  await until("more above", () => lines().length > 200);
  equal(Math.abs(first.getBoundingClientRect().top - place) < 1, true, "what is loaded above does not move what one reads");
}

// Checks keys that belong to an input method; Safari sends the last one after the composition.
async function checkKeys() {
  conversation("bob").click();
  type("#text", "にほん");
  for (const key of [{ isComposing: true }, { keyCode: 229 }, { shiftKey: true }]) equal(press("#text", "Enter", key), true, "Enter is not ours");
  equal($("#text").value, "にほん", "nothing is sent");
  act("hi alice", "reply");
  equal([press("#text", "Escape", { isComposing: true }), $("#context").hidden], [true, false], "nor is Escape");
  press("#text", "Escape");
  equal(press("#text", "Enter"), false, "Enter is ours");
  await until("the message", () => rowOf("にほん")?.dataset.seq);
}

async function checkFailure() {
  server.refuse = ({ action }) => (action === "send" ? { code: "FORBIDDEN", message: "NOT_FOUND: 2m0s", retryable: false } : undefined);
  say("refused");
  await until("the refusal", () => rowOf("refused")?.dataset.state === "failed");
  equal(rowOf("refused").querySelector(".failure").textContent, "Not sent: you may not do that.Send againCopyRemove", "why, and what can be done");
  server.refuse = () => undefined;
  rowOf("refused").querySelector(".retry").click();
  equal(document.activeElement.id, "scroll", "the focus is not lost with the button");
  await until("it being sent", () => rowOf("refused")?.dataset.state === "sent" && rowOf("refused").querySelector(".failure").textContent === "");
}

const there = (text) => ({ conversationId: keyOf("bob"), seq: Number(rowOf(text).dataset.seq), messageId: `id-${keyOf("bob")}-${rowOf(text).dataset.seq}` });

// Checks what happens when the message that is answered or edited changes meanwhile, or goes.
async function checkFollowing() {
  act("hi alice", "reply");
  type("#text", "my answer");
  server.act("bob", "edit", { ...there("hi alice"), version: 1, text: "hi all" });
  await until("the new text", () => $("#context-text").textContent === "Reply to bob: hi all");
  server.act("bob", "recall", there("hi all"));
  await until("the recall", () => $("#context-text").textContent === "Reply to bob: This message was recalled.");
  equal($("#text").value, "my answer", "what one writes stays");
  press("#text", "Escape");

  await send("mine one");
  type("#text", "a draft");
  act("mine one", "edit");
  server.act("alice", "edit", { ...there("mine one"), version: 1, text: "mine two" });
  await until("the other text", () => $("#text").value === "mine two");
  type("#text", "mine three");
  server.act("alice", "edit", { ...there("mine two"), version: 2, text: "mine four" });
  await until("word of it", () => $("#context-text").textContent === "It was changed on another device meanwhile, to: mine four");
  conversation("frank").click();
  equal([$("#text").value, $("#context").hidden], ["", true], "elsewhere is another draft");
  conversation("bob").click();
  equal([$("#text").value, $("#send").textContent], ["mine three", "Save"], "and this one is still there");
  server.act("alice", "recall", there("mine four"));
  await until("the end of it", () => $("#context-text").textContent === "This message was recalled meanwhile.");
  equal([$("#text").value, $("#send").textContent], ["a draft\nmine three", "Send"], "what one wrote is kept");
  await send("once more");
  type("#text", "a draft");
  act("once more", "edit");
  server.act("alice", "recall", there("once more"));
  await until("the end of it", () => $("#composer").dataset.mode === "note");
  equal($("#text").value, "a draft", "what was recalled is not kept");
  type("#text", "");
  equal($("#context").hidden, true, "the word is gone with the next one");

  type("#to", "heidi");
  click("#start");
  type("#text", "dear heidi");
  conversation("bob").click();
  server.post("heidi", { to: "alice" }, "dear alice");
  await until("her message", () => conversation("heidi")?.dataset.unread === "1");
  conversation("heidi").click();
  equal($("#text").value, "dear heidi", "a draft outlives the key it was written under");
  type("#text", "x".repeat(4_001));
  equal([$("#counter").textContent, $("#send").disabled], ["4,001 / 4,000", true], "no more than fits");
  type("#text", "");
  equal($("#counter").textContent, "", "one need not know what is far off");
  conversation("bob").click();
}

// Checks that Edit and Recall are offered as long as they work, also by an open menu.
async function checkWindow() {
  for (let windowMs = 700; !(await beginEditWithin(windowMs)); windowMs *= 4); // a busy machine may need longer
  await until("the end of that", () => !isShown("#menu [data-act='edit']") && !isShown("#menu [data-act='recall']"));
  equal(all("#menu [data-act]").map((item) => item.dataset.act), ["reply", "copy"], "the rest is still offered");
  $("#menu").hidePopover();
  equal([$("#context-text").textContent, $("#text").value], ["This message cannot be changed any more.", "not in time"], "the edit has ended, and nothing is lost");
}

// Sends a message and opens its menu while it is edited; false if the time to do that was over.
async function beginEditWithin(windowMs) {
  server.windowMs = windowMs;
  server.cutAll();
  await until("being away", () => $("#app").dataset.connection !== "online");
  await until("being online", () => $("#app").dataset.connection === "online");
  await until("the times", () => all("#messages > .mine").every((row) => !menuOf(row.querySelector(".text").textContent).includes("edit")));
  const text = `sent within ${windowMs} ms`;
  await send(text);
  if (!menuOf(text).includes("edit")) return false;
  act(text, "edit");
  type("#text", "not in time");
  openMenu(text);
  if (isShown("#menu [data-act='edit']") && $("#composer").dataset.mode === "edit") return true;
  $("#menu").hidePopover();
  return false;
}

// Checks a restored server, which has less than this device: the rest is shown until the user puts it aside.
async function checkLost() {
  server.post("grace", { to: "alice" }, "kept");
  await until("grace", () => conversation("grace"));
  conversation("grace").click();
  const backup = server.backup();
  server.post("grace", { to: "alice" }, "gone");
  say("written here");
  await until("both", () => lines().length === 3 && rowOf("written here").dataset.state === "sent");
  equal(isShown("#lost"), false, "nothing is lost");
  server.restore(backup);
  server.cutAll();
  await until("what is lost", () => isShown("#lost") && rowOf("gone").querySelector(".failure").textContent === "Only this device still has this.");
  await until("what is ours", () => rowOf("written here").dataset.state === "failed");
  click("#lost-remove");
  equal([$("#lost-remove").textContent, Boolean(rowOf("gone"))], ["Remove the only copies?", true], "it asks first");
  click("#lost-remove");
  await until("it being gone", () => !rowOf("gone") && !isShown("#lost"));
  equal([lines(), document.activeElement.id], [["kept", "written here"], "scroll"], "what can be sent again stays, and the focus");
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

// Returns whether the browser is left to handle the key.
function press(selector, key, extra = {}) {
  return $(selector).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...extra }));
}

function say(text) {
  type("#text", text);
  press("#text", "Enter");
}

async function send(text) {
  say(text);
  await until(`“${text}” being sent`, () => rowOf(text)?.dataset.seq);
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

async function until(what, condition, limitMs = 60_000) {
  const end = performance.now() + limitMs;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`still waiting for ${what}; the page shows:\n${document.body.innerText.slice(0, 2_000)}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

// Waits long enough for the page to have done what it must not do.
async function pause() {
  for (let i = 0; i < 3; i++) await new Promise((resolve) => requestAnimationFrame(resolve));
  await new Promise((resolve) => setTimeout(resolve, 60));
}

function equal(got, want, what) {
  const [a, b] = [got, want].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`);
}
