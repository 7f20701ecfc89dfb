// The page: it shows what the client knows and hands on what the user does.

import { MAX_TITLE_RUNES, countRunes, open } from "./client/index.js";
import { Composer } from "./composer.js";
import { Details } from "./details.js";
import { deviceOf } from "./device.js";
import { $, KeyedList, button, element, setText, setTime } from "./dom.js";
import { openMenu } from "./menu.js";
import { MessageList } from "./messages.js";
import { listOf, membersWords, namesIn, previewOf } from "./words.js";

const SENT_AWAY = { replaced: "This device was connected again somewhere else", devices: "You connected too many other devices" };

let client = null;
let list = null; // the messages of the open conversation
let composer = null;
let details = null;
let openKey = null; // the conversation on screen
let drawing = false;
let passingNote = ""; // until the next thing the user does
const conversations = new KeyedList($("conversations"), newConversationNode);

// ---- entering and leaving ----

async function enter(user) {
  const config = await getJSON("/config.json");
  const deviceId = deviceOf(parameters(), () => localStorage);
  history.replaceState(null, "", hashFor(user, parameters().has("device") ? deviceId : null));
  client = await open({ url: config.webSocketUrl, userId: user, deviceId, token: () => getToken(user) });
  client.addEventListener("change", drawSoon);
  list = new MessageList(client, { menu: openMessageMenu, quote: ({ quote }) => jumpTo(quote.seq), editAgain: (row, text) => composer.edit(row, text) });
  composer = new Composer(client, sent);
  details = new Details(client);
  $("me").textContent = user;
  $("second-device").href = hashFor(user, "new");
  $("device").textContent = deviceId;
  $("welcome").hidden = true;
  $("app").hidden = false;
  document.addEventListener("visibilitychange", drawSoon);
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
  const error = new Error(`${path} answered ${response.status}${reason && `: ${reason}`}`);
  error.permanent = response.status >= 400 && response.status < 500 && response.status !== 408 && response.status !== 429;
  throw error;
}

async function enterOrExplain(user) {
  $("enter").disabled = true;
  try {
    await enter(user);
  } catch (error) {
    $("welcome-error").textContent = `Could not start: ${error.message}. Is the local cloud running?`;
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
  const key = sessionStorage.getItem(openKeyName());
  return isGone(key) ? null : key;
}

// Such as a group that could not be made, once the user has put that aside, or the key under which a
// group was made before a reload.
function isGone(key) {
  return key !== null && client.conversation(key).closed === "unknown";
}

function openConversation(key) {
  openKey = key;
  details.close();
  composer.open(key);
  list.open(key);
  client.show(key);
  draw();
  if (key === null) return;
  list.toTheEnd();
  composer.focus();
}

function sent() {
  passingNote = "";
  draw();
  list.toTheEnd();
}

// The key changes when the server names the conversation.
function followKey() {
  if (openKey !== null) openKey = client.currentKey(openKey);
  if (openKey === null) sessionStorage.removeItem(openKeyName());
  else sessionStorage.setItem(openKeyName(), openKey);
}

async function jumpTo(seq) {
  try {
    if (!(await list.jumpTo(seq))) note(`Message #${seq} is not there any more.`);
  } catch (error) {
    note(`Message #${seq} could not be loaded: ${error.message}.`);
  }
}

// ---- what is done to one message ----

function openMessageMenu(opener, row) {
  const { kind, closed } = client.conversation(openKey);
  const items = [];
  const offer = (act, label, run) => items.push({ act, label, run });
  if (closed === null) {
    offer("reply", "Reply", () => composer.reply(row));
    if (row.canEdit && row.kind === "text") offer("edit", "Edit", () => composer.edit(row, row.text));
    if (row.canRecall) offer("recall", "Recall", () => client.recall(openKey, row));
  }
  if (row.mine && kind === "group" && closed !== "left") offer("receipts", "Who has read it?", () => showReaders(row));
  offer("copy", "Copy text", () => copy(row.text));
  openMenu(opener, items);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch (error) {
    note(`The browser did not let the page copy: ${error.message}`);
  }
}

async function showReaders({ seq, time }) {
  setText($("readers-list"), "…");
  $("readers").showModal();
  try {
    const { delivered, read } = await client.receipts(openKey, seq);
    const later = client.members(openKey)?.filter(({ joinedAt }) => joinedAt > time).map(({ userId }) => userId) ?? [];
    const others = (userIds) => userIds.filter((userId) => userId !== client.userId && !later.includes(userId));
    const only = others(delivered).filter((userId) => !read.includes(userId));
    setText($("readers-list"), `Read by ${listOf(others(read)) || "nobody yet"}.${only.length > 0 ? ` Delivered to ${listOf(only)}.` : ""}`);
  } catch (error) {
    setText($("readers-list"), `This could not be looked up: ${error.message}.`);
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
  if (openKey !== null && !document.hidden) client.markRead(openKey);
  drawConnection();
  drawConversations();
  drawOpen();
}

function drawConnection() {
  setText($("state"), client.state);
  $("app").dataset.connection = client.state;
  $("app").dataset.leads = client.leads;
  $("device").title = client.leads ? "This tab has the connection of this device" : "This tab shares the connection of another one";
  $("offline").checked = client.state === "offline";
  if (client.detail === "outdated") say("A newer version of this page is open in another tab. Reload this one.");
  else if (client.storeError) say(`Nothing can be stored here (${client.storeError.message}); after a reload messages are fetched again, and what is not sent is gone.`);
  else if (SENT_AWAY[client.detail]) say(`${SENT_AWAY[client.detail]}, so this page went offline. Switch Offline off to take over.`);
  else if (client.state !== "online" && client.detail) say(`Not connected: ${client.detail}.`);
  else say(passingNote);
}

function say(text) {
  setText($("notice"), text);
  $("notice").hidden = text === "";
}

function note(text) {
  passingNote = text;
  drawConnection();
}

function drawConversations() {
  const summaries = [...client.conversations()];
  if (openKey !== null && !summaries.some(({ key }) => key === openKey)) summaries.unshift(client.conversation(openKey));
  conversations.draw(summaries, ({ key }) => key, (node, summary) => fillConversation(node.firstChild, summary));
  $("no-conversations").hidden = summaries.length > 0;
  const unread = summaries.reduce((sum, summary) => sum + summary.unread, 0);
  document.title = unread > 0 ? `(${unread}) Inorder` : "Inorder";
}

function newConversationNode() {
  const node = button("conversation", "", () => openConversation(node.dataset.conversation));
  node.append(element("span", "name"), element("time"), element("span", "preview"), element("span", "badge"));
  return element("li", "", [node]);
}

function fillConversation(node, { key, kind, closed, title, unread, last, time: when }) {
  const [name, time, preview, badge] = node.children;
  Object.assign(node.dataset, { conversation: key, unread, kind, closed: closed ?? "" });
  node.setAttribute("aria-current", key === openKey);
  setText(name, title);
  setTime(time, when);
  setText(preview, previewOf(last, kind, client.userId).slice(0, 120));
  setText(badge, unread > 99 ? "99+" : String(unread));
  badge.hidden = unread === 0;
  badge.setAttribute("aria-label", `${unread} unread`);
}

function drawOpen() {
  $("app").dataset.view = openKey === null ? "list" : "chat";
  $("empty").hidden = openKey !== null;
  $("open").hidden = openKey === null;
  if (openKey === null) return;
  const { title, kind, memberCount, closed } = client.conversation(openKey);
  setText($("title"), title);
  setText($("subtitle"), kind === "group" && closed !== "left" && memberCount > 0 ? membersWords(memberCount) : "");
  setText($("details-open"), kind === "group" ? "Members" : "Details");
  list.draw();
  composer.draw();
  details.draw();
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
  openConversation(client.createGroup(title, members));
});

$("back").addEventListener("click", () => {
  const key = openKey;
  openConversation(null);
  conversations.get(key)?.firstChild.focus();
});

$("details-open").addEventListener("click", () => details.open(openKey));

$("readers-close").addEventListener("click", () => $("readers").close());

$("earlier").addEventListener("click", async () => {
  try {
    await list.showEarlier();
  } catch (error) {
    note(`Earlier messages could not be loaded: ${error.message}.`);
  }
});

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
