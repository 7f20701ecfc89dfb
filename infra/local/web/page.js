// The page: it shows what the client knows and hands on what the user does.

import { InorderClient, MAX_TEXT_RUNES, countRunes } from "./client.js";
import { claimDevice } from "./device.js";
import { IndexedDBStore, MemoryStore } from "./store.js";

const ROWS_AT_FIRST = 200;
const NEAR_THE_END_PX = 80;

const $ = (id) => document.getElementById(id);

let client = null;
let openKey = null; // the conversation on screen
let rowsShown = ROWS_AT_FIRST;
let drawing = false;
let storageNote = "";
const messageNodes = new Map(); // of the open conversation, by rowKey
const conversationNodes = new Map(); // by conversation key

// ---- entering and leaving ----

async function enter(user) {
  const config = await getJSON("/config.json");
  const deviceId = await claimDevice();
  const { store, why } = await openStore(user, deviceId);
  client = new InorderClient({ url: config.webSocketUrl, userId: user, deviceId, store, getToken: () => getToken(user) });
  client.addEventListener("change", drawSoon);
  $("me").textContent = user;
  $("device").textContent = deviceId;
  $("welcome").hidden = true;
  $("app").hidden = false;
  if (why) storageNote = `This browser gives no storage (${why}); what is not sent is gone after a reload.`;
  window.addEventListener("online", () => client.retryNow());
  document.addEventListener("visibilitychange", drawSoon);
  await client.start();
  openConversation(sessionStorage.getItem(openKeyName()));
}

async function openStore(user, deviceId) {
  try {
    return { store: await IndexedDBStore.open(user, deviceId) };
  } catch (error) {
    return { store: new MemoryStore(), why: error.message };
  }
}

async function getToken(user) {
  const { token } = await getJSON(`/dev/token?user=${encodeURIComponent(user)}`);
  return token;
}

async function getJSON(path) {
  const response = await fetch(path, { cache: "no-store" });
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

function userFromHash() {
  return new URLSearchParams(location.hash.slice(1)).get("user")?.trim() || null;
}

function hashFor(user) {
  return "#" + new URLSearchParams({ user });
}

// ---- conversations ----

function openKeyName() {
  return `inorder.open/${client.userId}`;
}

function openConversation(key) {
  openKey = key;
  rowsShown = ROWS_AT_FIRST;
  messageNodes.clear();
  $("messages").replaceChildren();
  if (key === null) sessionStorage.removeItem(openKeyName());
  else sessionStorage.setItem(openKeyName(), key);
  draw();
  toTheEnd();
  if (key !== null) $("text").focus();
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
  if (openKey !== null && !document.hidden) client.markRead(openKey);
  drawConnection();
  drawConversations();
  drawMessages();
}

function drawConnection() {
  setText($("state"), client.state);
  $("app").dataset.connection = client.state;
  $("offline").checked = client.state === "offline";
  if (client.storeError) say(`Messages can no longer be stored here (${client.storeError.message}); after a reload they are fetched again.`);
  else if (client.detail === "replaced") say("This device was connected again somewhere else, so this page went offline. Switch Offline off to take over.");
  else if (client.state !== "online" && client.detail) say(`Not connected: ${client.detail}.`);
  else say(storageNote);
}

function say(text) {
  setText($("notice"), text);
  $("notice").hidden = text === "";
}

function drawConversations() {
  const summaries = client.conversations();
  const current = openKey === null ? null : client.currentKey(openKey);
  if (current !== null && !summaries.some(({ key }) => key === current)) summaries.unshift(client.conversation(current));
  const rows = summaries.map((summary) => {
    const node = nodeFor(conversationNodes, summary.key, newConversationNode);
    fillConversation(node.firstChild, summary, summary.key === current);
    return node;
  });
  arrange($("conversations"), rows, conversationNodes);
  $("no-conversations").hidden = rows.length > 0;
  const unread = summaries.reduce((sum, summary) => sum + summary.unread, 0);
  document.title = unread > 0 ? `(${unread}) Inorder` : "Inorder";
}

function newConversationNode() {
  const button = element("button", "conversation", [element("span", "name"), element("time"), element("span", "preview"), element("span", "badge")]);
  button.type = "button";
  button.addEventListener("click", () => openConversation(button.dataset.conversation));
  return element("li", "", [button]);
}

function fillConversation(button, { key, title, unread, last }, current) {
  const [name, time, preview, badge] = button.children;
  button.dataset.conversation = key;
  button.dataset.unread = unread;
  button.setAttribute("aria-current", current);
  setText(name, title);
  fillTime(time, last?.time);
  setText(preview, last ? `${last.mine ? "You: " : ""}${bodyOf(last)}`.slice(0, 120) : "No messages yet");
  setText(badge, String(unread));
  badge.hidden = unread === 0;
  badge.setAttribute("aria-label", `${unread} unread`);
}

function drawMessages() {
  $("app").dataset.view = openKey === null ? "list" : "chat";
  $("empty").hidden = openKey !== null;
  $("open").hidden = openKey === null;
  if (openKey === null) return;
  const { title, kind } = client.conversation(openKey);
  setText($("title"), title);
  const atTheEnd = isNearTheEnd();
  const rows = client.messages(openKey, rowsShown + 1);
  $("earlier").hidden = rows.length <= rowsShown;
  const nodes = rows.slice(-rowsShown).map((row) => {
    const node = nodeFor(messageNodes, rowKey(row), newMessageNode);
    fillMessage(node, row, kind);
    return node;
  });
  arrange($("messages"), nodes, messageNodes);
  if (atTheEnd) toTheEnd();
  drawComposer(kind);
}

// One row keeps its node from "sending" to its seq; clientMsgId is unique per sender only.
function rowKey({ clientMsgId, senderId, seq }) {
  return clientMsgId ? `${senderId}/${clientMsgId}` : `#${seq}`;
}

function newMessageNode() {
  const meta = element("div", "meta", [element("span", "seq"), element("time"), element("span", "edited"), element("span", "delivery")]);
  return element("div", "message", [element("div", "sender"), element("div", "text"), meta]);
}

function fillMessage(node, row, kind) {
  const [sender, text, meta] = node.children;
  const [seq, time, edited, delivery] = meta.children;
  node.className = "message" + (row.mine ? " mine" : "") + (row.kind === "event" ? " event" : "") + (isOwnWords(row) ? "" : " stand-in");
  setData(node, "seq", row.seq);
  setData(node, "clientMsgId", row.clientMsgId);
  setData(node, "state", row.state);
  setText(sender, row.senderId ?? "");
  sender.className = row.mine && kind === "single" ? "sender visually-hidden" : "sender"; // its side says it to the eye
  setText(text, bodyOf(row));
  setText(seq, row.seq === null ? "" : `#${row.seq}`);
  fillTime(time, row.time);
  setText(edited, row.edited ? "edited" : "");
  setText(delivery, deliveryOf(row));
  fillRemove(meta, row);
}

function fillRemove(meta, { state, clientMsgId }) {
  if (state !== "failed" || meta.querySelector(".remove")) return;
  const button = element("button", "remove");
  button.type = "button";
  button.textContent = "Remove";
  button.addEventListener("click", () => {
    client.discard(clientMsgId);
    $("text").focus();
  });
  meta.append(button);
}

function deliveryOf({ state, error, receipt }) {
  return state === "failed" ? `failed: ${error}` : (receipt ?? state ?? "");
}

// False where the page words it, because there is no text or it is gone.
function isOwnWords({ kind, recalled }) {
  return !recalled && (kind === "text" || kind === "system");
}

function bodyOf({ kind, text, recalled, event }) {
  if (recalled) return "This message was recalled.";
  if (kind === "event") return EVENTS[event?.kind] ?? "Something changed.";
  return text || `[${kind}]`;
}

const EVENTS = { members: "The members changed.", title: "The title changed.", dissolve: "The group was dissolved." };

function drawComposer(kind) {
  const runes = countRunes($("text").value);
  const over = runes > MAX_TEXT_RUNES;
  setText($("counter"), `${runes.toLocaleString("en")} / ${MAX_TEXT_RUNES.toLocaleString("en")}`);
  $("counter").classList.toggle("over", over);
  $("text").setAttribute("aria-invalid", over);
  $("text").disabled = kind === "system"; // members read these and cannot reply
  $("send").disabled = kind === "system" || over || $("text").value.trim() === "";
}

// ---- small things ----

function element(tag, className = "", children = []) {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...children);
  return node;
}

function nodeFor(nodes, key, make) {
  if (!nodes.has(key)) nodes.set(key, make());
  return nodes.get(key);
}

// Brings the children of parent into this order, touching only what moved: a screen reader announces
// what is inserted, and a moved element loses the focus.
function arrange(parent, wanted, nodes) {
  const keep = new Set(wanted);
  for (const [key, node] of nodes) {
    if (keep.has(node)) continue;
    nodes.delete(key);
    node.remove();
  }
  let next = null;
  for (let i = wanted.length - 1; i >= 0; i--) {
    if (wanted[i].parentNode !== parent || wanted[i].nextSibling !== next) parent.insertBefore(wanted[i], next);
    next = wanted[i];
  }
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setData(node, name, value) {
  if (value === null || value === undefined) delete node.dataset[name];
  else node.dataset[name] = value;
}

function fillTime(node, ms) {
  node.hidden = !ms;
  if (!ms) return;
  const date = new Date(ms);
  const today = date.toDateString() === new Date().toDateString();
  node.dateTime = date.toISOString();
  node.title = date.toLocaleString();
  setText(node, today ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : date.toLocaleDateString([], { day: "numeric", month: "short" }));
}

function isNearTheEnd() {
  const { scrollHeight, scrollTop, clientHeight } = $("scroll");
  return scrollHeight - scrollTop - clientHeight < NEAR_THE_END_PX;
}

function toTheEnd() {
  $("scroll").scrollTop = $("scroll").scrollHeight;
}

// ---- what the user does ----

$("enter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const user = $("user").value.trim();
  if (user === "") return;
  history.replaceState(null, "", hashFor(user));
  enterOrExplain(user);
});

$("leave").addEventListener("click", async () => {
  await client.stop();
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

$("back").addEventListener("click", () => {
  const key = client.currentKey(openKey);
  openConversation(null);
  conversationNodes.get(key)?.firstChild.focus();
});

$("earlier").addEventListener("click", () => {
  const fromTheEnd = $("scroll").scrollHeight - $("scroll").scrollTop;
  rowsShown += ROWS_AT_FIRST;
  draw();
  $("scroll").scrollTop = $("scroll").scrollHeight - fromTheEnd;
  if ($("earlier").hidden) $("scroll").focus();
});

$("text").addEventListener("input", () => drawComposer(client.conversation(openKey).kind));

function isSendKey(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

$("text").addEventListener("keydown", (event) => {
  if (!isSendKey(event)) return;
  event.preventDefault();
  $("composer").requestSubmit();
});

// Some drivers of keyboards send the character as an event of its own, which would start the next
// message with an empty line.
$("text").addEventListener("keypress", (event) => {
  if (isSendKey(event)) event.preventDefault();
});

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("send").disabled) return;
  client.send(openKey, $("text").value);
  $("text").value = "";
  draw();
  toTheEnd();
  $("text").focus();
});

window.addEventListener("hashchange", () => {
  if (userFromHash() !== (client?.userId ?? null)) location.reload();
});

const named = userFromHash();
if (named) {
  $("user").value = named;
  enterOrExplain(named);
} else {
  $("user").focus();
}
