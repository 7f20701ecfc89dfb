// The page: it shows what the client knows and passes on what the user does.

import { MAX_TITLE_RUNES, countRunes, open } from "./client/index.js";
import { Composer } from "./composer.js";
import { Details } from "./details.js";
import { deviceOf } from "./device.js";
import { $, KeyedList, button, element, isTouch, setAvatar, setParts, setText, setTime, worded } from "./dom.js";
import { closeMenu, openMenu, redrawMenu } from "./menu.js";
import { MessageList } from "./messages.js";
import { lineOf, listOf, membersWords, namesIn, nextDay, previewOf, problemWords, said, titleOf, whenWords, whyWords } from "./words.js";

const SENT_AWAY = { replaced: "This device was connected again somewhere else", devices: "You connected too many other devices" };
const SPOKEN_CHARACTERS = 300; // of a new message, by a screen reader
const SPOKEN_LINES = 20; // that are kept to be read again
const NOTE_MS = 8_000;
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

let client = null;
let list = null; // the messages of the open conversation
let composer = null;
let details = null;
let openKey = null; // the conversation on screen
let drawing = false;
let passingNote = ""; // until it has passed, or the user has sent something
let passing = null; // its timer
const conversations = new KeyedList($("conversations"), newConversationNode);

// ---- entering and leaving ----

async function enter(user) {
  const config = await getJSON("/config.json");
  const deviceId = deviceOf(parameters(), () => localStorage);
  history.replaceState(null, "", hashFor(user, parameters().has("device") ? deviceId : null));
  client = await open({ url: config.webSocketUrl, userId: user, deviceId, token: () => getToken(user) });
  client.addEventListener("change", drawSoon);
  client.addEventListener("message", ({ detail }) => speak(detail));
  list = new MessageList(client, { menu: openMessageMenu, quote: ({ quote }) => jumpTo(quote.seq), editAgain: (row, text) => composer.edit(row, text), copy, retry, earlier: showEarlier });
  composer = new Composer(client, sent);
  details = new Details(client, refused);
  setParts($("me"), [{ name: user }]);
  setAvatar($("my-avatar"), user);
  $("second-device").href = hashFor(user, "new");
  $("device").textContent = deviceId;
  $("welcome").hidden = true;
  $("app").hidden = false;
  document.addEventListener("visibilitychange", drawSoon);
  window.addEventListener("focus", drawSoon);
  drawAtMidnight();
  openConversation(keyFromBefore());
}

async function getToken(user) {
  const { token } = await getJSON(`/dev/token?user=${encodeURIComponent(user)}`);
  return token;
}

async function getJSON(path) {
  const response = await fetch(path, { cache: "no-store" }).catch(() => {
    throw new Error("the server does not answer"); // the browser says no more than "Failed to fetch"
  });
  if (response.ok) return response.json();
  const reason = (await response.text()).trim().slice(0, 200);
  const error = new Error(reason || `the server answered with the error ${response.status}`);
  error.permanent = response.status >= 400 && response.status < 500 && response.status !== 408 && response.status !== 429;
  throw error;
}

async function enterOrExplain(user) {
  $("enter").disabled = true;
  try {
    await enter(user);
  } catch (error) {
    $("welcome-error").textContent = `This did not work: ${error.message}. Is the local cloud running?`;
    $("welcome-error").hidden = false;
    $("welcome").hidden = false;
    $("app").hidden = true;
    $("enter").disabled = false;
  }
}

function parameters() {
  return new URLSearchParams(location.hash.slice(1));
}

function userFromHash() {
  return parameters().get("user")?.trim() || null;
}

function hashFor(user, device) {
  return "#" + new URLSearchParams({ user, ...(device && { device }) });
}

// ---- conversations ----

function openKeyName() {
  return `inorder.open/${client.userId}`;
}

function keyFromBefore() {
  let key = null;
  try {
    key = sessionStorage.getItem(openKeyName());
  } catch {
    // the browser has no storage
  }
  return isGone(key) ? null : key;
}

function keepForLater(key) {
  try {
    if (key === null) sessionStorage.removeItem(openKeyName());
    else sessionStorage.setItem(openKeyName(), key);
  } catch {
    // likewise: a reload shows the list
  }
}

// For example a group that could not be made, once the user has removed it, or the key under which a group was made
// before a reload.
function isGone(key) {
  return key !== null && client.conversation(key).closed === "unknown" && client.messages(key, 1).length === 0;
}

function openConversation(key) {
  openKey = key;
  details.close();
  closeMenu();
  composer.open(key);
  list.open(key);
  client.show(key);
  $("spoken").replaceChildren();
  draw();
  if (key === null) return;
  list.toTheNews();
  if (isTouch()) $("title").focus({ preventScroll: true }); // a keyboard would cover what there is to read
  else composer.focus();
}

function sent(isEdit) {
  passingNote = "";
  draw();
  if (!isEdit) list.answered();
}

// The key changes when the server names the conversation.
function followKey() {
  if (openKey !== null) openKey = client.currentKey(openKey);
  keepForLater(openKey);
}

async function jumpTo(seq) {
  try {
    if (!(await list.jumpTo(seq))) note("That message is not there any more.");
  } catch (error) {
    note(`That message could not be loaded: ${whyWords(error, "look")}.`);
  }
}

async function showEarlier() {
  try {
    await list.showEarlier();
  } catch (error) {
    note(`Earlier messages could not be loaded: ${whyWords(error, "look")}.`);
  }
}

// Shows what the client itself refuses, such as a 1,001st change that waits; what the server refuses is a row.
function refused(error) {
  note(`This did not work: ${problemWords(error, "group")}.`);
}

// ---- the menu of a message ----

function openMessageMenu(opener, rowNow) {
  openMenu(opener, () => offersFor(rowNow()));
}

function offersFor(row) {
  const { kind, closed } = client.conversation(openKey);
  const offers = [];
  const offer = (act, label, run) => offers.push({ act, label, run });
  if (row.recalled) return offers;
  if (closed === null && row.seq !== null) {
    offer("reply", "Reply", () => composer.reply(row));
    if (row.canEdit && row.kind === "text") offer("edit", "Edit", () => composer.edit(row, row.text));
    if (row.canRecall) offer("recall", "Recall", () => client.recall(openKey, row).catch(refused));
  }
  if (row.seq !== null && row.mine && kind === "group" && closed !== "left") offer("receipts", "Who has read it?", () => showReaders(row));
  if (row.text !== "") offer("copy", "Copy text", () => copy(row.text));
  return offers;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    note("Copied.");
  } catch {
    note("The browser did not let the page copy. Select the text to copy it.");
  }
}

function retry(clientMsgId) {
  client.retry(clientMsgId).catch(refused);
}

async function showReaders({ seq, time }) {
  setParts($("readers-list"), ["…"]);
  $("readers").showModal();
  try {
    const { delivered, read } = await client.receipts(openKey, seq);
    const later = client.members(openKey)?.filter(({ joinedAt }) => joinedAt > time).map(({ userId }) => userId) ?? [];
    const others = (userIds) => userIds.filter((userId) => userId !== client.userId && !later.includes(userId));
    const named = (userIds) => listOf(userIds.map((name) => ({ name })));
    const readers = others(read);
    const only = others(delivered).filter((userId) => !read.includes(userId));
    setParts($("readers-list"), said`Read by ${readers.length > 0 ? named(readers) : "nobody yet"}.${only.length > 0 ? said` Delivered to ${named(only)}.` : ""}`);
  } catch (error) {
    setParts($("readers-list"), [`This could not be looked up: ${whyWords(error, "look")}.`]);
  }
}

// ---- drawing ----

function drawSoon() {
  if (drawing) return;
  drawing = true;
  // Not an animation frame: a hidden tab gets none, but its title counts what is unread.
  setTimeout(() => {
    drawing = false;
    draw();
  }, 16);
}

function draw() {
  followKey();
  if (isGone(openKey)) return openConversation(null);
  drawConnection();
  drawConversations();
  drawOpen();
}

// The days are called otherwise after midnight.
function drawAtMidnight() {
  const now = Date.now();
  setTimeout(() => {
    draw();
    drawAtMidnight();
  }, Math.min(nextDay(now) - now + 1_000, MAX_TIMEOUT_MS));
}

const STATE_WORDS = { online: "online", connecting: "connecting …", offline: "offline" };

function drawConnection() {
  setText($("state"), STATE_WORDS[client.state]);
  $("app").dataset.connection = client.state;
  $("app").dataset.leads = client.leads;
  $("device").title = client.leads ? "This tab has the connection of this device" : "This tab shares the connection of another one";
  $("offline").checked = client.state === "offline";
  if (client.detail === "outdated") say("A newer version of this page is open in another tab. Reload this one.");
  else if (client.storeError) say("This browser does not let the page keep anything. After a reload messages are fetched again, and what is not sent is gone.", client.storeError.message);
  else if (SENT_AWAY[client.detail]) say(`${SENT_AWAY[client.detail]}, so this page went offline. Switch Offline off to take over.`);
  else if (client.state !== "online" && client.detail) say(`Not connected: ${client.detail}.${client.state === "connecting" ? " Is the local cloud running? Its terminal says more." : ""}`);
  else say(passingNote || (client.state === "offline" ? "You are offline. What you write is kept, and sent once you are back." : ""));
}

function say(text, technical = "") {
  setText($("notice"), text);
  $("notice").title = technical;
  $("notice").hidden = text === "";
}

function note(text) {
  passingNote = text;
  clearTimeout(passing);
  passing = setTimeout(() => {
    passingNote = "";
    drawConnection();
  }, NOTE_MS);
  drawConnection();
}

// Speaks new messages of the conversation on screen to users of a screen reader.
function speak({ key, row }) {
  if (openKey === null || client.currentKey(openKey) !== key || row.kind === "event") return;
  const line = lineOf(row, client.userId, SPOKEN_CHARACTERS);
  $("spoken").append(worded("p", "", row.kind === "system" ? line : said`${{ name: row.senderId ?? "" }}: ${line}`));
  while ($("spoken").childElementCount > SPOKEN_LINES) $("spoken").firstElementChild.remove();
}

function drawConversations() {
  const now = Date.now();
  const summaries = [...client.conversations()];
  if (openKey !== null && !summaries.some(({ key }) => key === openKey)) summaries.unshift(client.conversation(openKey));
  conversations.draw(summaries, ({ key }) => key, (node, summary) => fillConversation(node.firstChild, summary, now));
  $("no-conversations").hidden = summaries.length > 0;
  const unread = summaries.reduce((sum, summary) => sum + summary.unread, 0);
  document.title = unread > 0 ? `(${unread}) Inorder` : "Inorder";
}

function newConversationNode() {
  const node = button("conversation", "", () => openConversation(node.dataset.conversation));
  const avatar = element("span", "avatar");
  avatar.ariaHidden = "true";
  node.append(avatar, worded("span", "name"), element("time"), worded("span", "preview"), element("span", "badge"), element("span", "visually-hidden"));
  return element("li", "", [node]);
}

function fillConversation(node, conversation, now) {
  const { key, kind, closed, unread, last, time: when } = conversation;
  const title = titleOf(conversation);
  const [avatar, name, time, preview, badge, spoken] = node.children;
  Object.assign(node.dataset, { conversation: key, unread, kind, closed: closed ?? "" });
  node.setAttribute("aria-current", key === openKey);
  setAvatar(avatar, title);
  setParts(name, [{ name: title }]);
  setTime(time, when, when && whenWords(when, now));
  setParts(preview, last === null && unread > 0 ? ["New messages"] : previewOf(last, kind, client.userId));
  setText(badge, unread > 99 ? "99+" : String(unread));
  badge.hidden = unread === 0;
  badge.ariaHidden = "true";
  setText(spoken, unread === 0 ? "" : `${unread} unread`);
}

function drawOpen() {
  $("app").dataset.view = openKey === null ? "list" : "chat";
  $("empty").hidden = openKey !== null;
  $("open").hidden = openKey === null;
  if (openKey === null) return;
  const conversation = client.conversation(openKey);
  const { kind, memberCount, closed } = conversation;
  const title = titleOf(conversation);
  setAvatar($("open-avatar"), title);
  setParts($("title"), [{ name: title }]);
  setText($("subtitle"), kind === "group" && closed !== "left" && memberCount > 0 ? membersWords(memberCount) : "");
  setText($("details-open"), kind === "group" ? "Members" : "Details");
  list.draw();
  composer.draw();
  details.draw();
  redrawMenu();
}

// ---- what the user does ----

$("enter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const user = $("user").value.trim();
  if (user === "") return;
  history.replaceState(null, "", hashFor(user, parameters().get("device")));
  enterOrExplain(user);
});

$("leave").addEventListener("click", async () => {
  await client.close();
  location.assign(location.pathname);
});

$("offline").addEventListener("change", (event) => client.setOffline(event.target.checked));

$("start-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const user = $("to").value.trim();
  if (user === "") return;
  $("to").value = "";
  openConversation(client.keyFor(user));
});

$("group-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const title = $("group-title").value.trim();
  const members = namesIn($("group-members").value).filter((name) => name !== client.userId);
  const over = countRunes(title) > MAX_TITLE_RUNES;
  $("group-error").hidden = !over;
  setText($("group-error"), over ? `A title has at most ${MAX_TITLE_RUNES} characters.` : "");
  if (title === "" || over) return;
  $("group-form").reset();
  $("new-group").open = false;
  try {
    openConversation(client.createGroup(title, members));
  } catch (error) {
    refused(error);
  }
});

$("back").addEventListener("click", () => {
  const key = openKey;
  openConversation(null);
  conversations.get(key)?.firstChild.focus();
});

$("details-open").addEventListener("click", () => details.open(openKey));

$("readers-close").addEventListener("click", () => $("readers").close());

$("earlier").addEventListener("click", showEarlier);

window.addEventListener("hashchange", () => {
  const device = parameters().get("device");
  if (userFromHash() !== (client?.userId ?? null) || (client && device !== null && device !== client.deviceId)) location.reload();
});

const named = userFromHash();
if (named) {
  $("user").value = named;
  enterOrExplain(named);
} else {
  $("user").focus();
}
