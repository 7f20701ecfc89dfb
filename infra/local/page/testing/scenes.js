// A small world for pictures of the page: window.scene(name) brings the page into a state, as alice.

import { systemClock } from "../client/connection.js";
import { FakeServer } from "../client/tests/server.js";

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const today = new Date().setHours(14, 26, 0, 0);
const start = performance.now();
Date.now = () => today + Math.round(performance.now() - start); // the page is opened in the afternoon
let now = today;

const server = new FakeServer({ ...systemClock, now: () => now });
globalThis.server = server;
globalThis.WebSocket = server.WebSocket;
server.latency = () => 0;

const $ = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const keyOf = (peer) => [...server.conversations.keys()].find((id) => id.startsWith("single:") && id.includes(peer));

function at(daysAgo, minutes, fn) {
  now = today - daysAgo * DAY - minutes * MINUTE;
  return fn();
}

const say = (from, address, text, extra) => server.post(from, address, text, extra);

function fill() {
  const trip = at(3, 60, () => server.act("carol", "createGroup", { title: "Weekend in Ghent", members: ["alice", "bob", "נועה"] })).conversationId;
  at(3, 55, () => say("carol", { conversationId: trip }, "I found three trains on Friday evening:\nhttps://www.belgiantrain.be/en"));
  at(3, 54, () => say("carol", { conversationId: trip }, "17:38, 18:08 and 18:38."));
  at(3, 40, () => say("alice", { conversationId: trip }, "18:08 is perfect for me."));
  at(1, 100, () => say("נועה", { conversationId: trip }, "אני מגיעה בשבת בבוקר, מתראים ליד התחנה!"));
  at(1, 98, () => say("נועה", { conversationId: trip }, "(the hotel is booked 🎉)"));
  at(1, 90, () => say("bob", { conversationId: trip }, "🥳"));
  const plan = at(0, 200, () => say("bob", { conversationId: trip }, "Who brings the map? I still have the one of last year (it is at https://example.org/maps/ghent_(2024).pdf)."));
  at(0, 196, () => say("alice", { conversationId: trip }, "I do.", { replyTo: { seq: plan.seq, messageId: plan.messageId } }));
  at(0, 195, () => say("alice", { conversationId: trip }, "And the good shoes 👟"));
  for (const [user, readSeq] of [["bob", 11], ["carol", 11], ["נועה", 8]]) server.act(user, "ack", { conversationId: trip, readSeq });

  at(0, 50, () => say("bob", { to: "alice" }, "Are you coming to the rehearsal tonight?"));
  at(0, 48, () => say("alice", { to: "bob" }, "Yes! I am late by ten minutes, start without me."));
  at(0, 47, () => say("bob", { to: "alice" }, "Good. Bring the notes of the second part, please: mine have coffee on them."));
  at(0, 46, () => say("bob", { to: "alice" }, "🎶"));
  at(0, 44, () => say("alice", { to: "bob" }, "They are in my bag."));
  at(0, 43, () => say("alice", { to: "bob" }, "The pianist asked whether we can begin with the slow one."));
  at(0, 41, () => say("bob", { to: "alice" }, "Fine with me."));
  server.act("bob", "ack", { conversationId: keyOf("bob"), readSeq: 7 });
  server.act("alice", "ack", { conversationId: keyOf("bob"), readSeq: 7 });
  server.act("alice", "ack", { conversationId: trip, readSeq: 11 });
  at(2, 30, () => say("ليلى", { to: "alice" }, "صباح الخير! هل وصلت الوثائق؟"));
  server.act("alice", "ack", { conversationId: keyOf("ليلى"), readSeq: 1 });
  at(0, 20, () => say("\u202Edave", { to: "alice" }, "Did you see the poster? https://example.com"));
  at(200, 1, () => say("Bartholomew Featherstonehaugh-Cholmondeley", { to: "alice" }, "Long names and long texts have to end somewhere, also in a list of conversations on a small phone."));
  const order = at(0, 5, () => server.system("order:1", ["alice"], "Your order 4711"));
  at(0, 5, () => say("system", { conversationId: order }, "It left our house this morning and is on its way.", { messageType: "system" }));
  at(0, 1, () => 0);
}

globalThis.scene = async (name) => {
  if (name === "welcome") return settled();
  await until(() => $("#app").dataset.connection === "online");
  if (name === "empty") return settled();
  fill();
  server.cutAll();
  await until(() => $("#app").dataset.connection === "online" && all(".conversation").length >= 6);
  await scenes[name]();
  await settled();
};

const scenes = {
  list: async () => {},
  chat: () => open("bob"),
  group: () => open("Weekend in Ghent"),
  closed: () => open("Your order 4711"),
  failed: async () => {
    await open("bob");
    server.refuse = ({ action }) => (action === "send" ? { code: "FORBIDDEN", message: "your role is guest", retryable: false } : undefined);
    write("This one is refused, for the sake of the picture.");
    await until(() => $(".message[data-state='failed']"));
  },
  offline: async () => {
    await open("bob");
    $("#offline").click();
    await until(() => $("#app").dataset.connection === "offline");
    write("I write this in the tunnel.");
    write("It will be sent when I am out of it.");
    await until(() => all(".message[data-state='sending']").length === 2);
  },
  news: async () => {
    for (let i = 1; i <= 30; i++) at(0, 0, () => say("bob", { to: "alice" }, i % 3 === 0 ? `And number ${i} of many, which is a little longer than the others, so that it takes two lines on a phone.` : `Number ${i}.`));
    await until(() => all(".conversation").some((node) => node.dataset.unread === "30"));
    await open("bob");
  },
  menu: async () => {
    await open("Weekend in Ghent");
    all(".message.mine .more").at(-1).click();
  },
  details: async () => {
    await open("Weekend in Ghent");
    $("#details-open").click();
    await until(() => all("#roster .member").length === 4);
  },
  edit: async () => {
    await open("bob");
    all(".message.mine .more").at(-1).click();
    $("#menu [data-act='edit']").click();
  },
};

async function open(title) {
  const node = () => all(".conversation").find((candidate) => candidate.querySelector(".name").textContent === title);
  await until(node);
  node().click();
  await until(() => all("#messages > .message").length > 0);
}

function write(text) {
  $("#text").value = text;
  $("#text").dispatchEvent(new InputEvent("input"));
  $("#composer").requestSubmit();
}

async function until(condition) {
  const end = performance.now() + 10_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`waited in vain for ${condition}; the page shows:\n${document.body.innerText}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function settled() {
  await document.fonts.ready;
  for (let i = 0; i < 4; i++) await new Promise((resolve) => setTimeout(resolve, 40));
}
