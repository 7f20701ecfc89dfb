import { InorderClient } from "../client.js";
import { MemoryStore } from "../store.js";
import { FakeBrowser, SharedStore } from "./browser.js";
import { VirtualClock } from "./clock.js";
import { FakeServer } from "./server.js";

/** A token that names its user; nobody signed it. */
export const jwtOf = (userId) => ["eyJhbGciOiJub25lIn0", btoa(JSON.stringify({ sub: userId })).replaceAll("=", ""), "c2lnbmF0dXJl"].join(".");

/** A token that only the server can read. */
export const opaqueTokenOf = (userId) => encodeURIComponent(userId);

/** A world with a server and any number of devices, each stopped when the test ends. */
export function setUp(t) {
  const clock = new VirtualClock();
  const server = new FakeServer(clock);
  const devices = [];
  t.after(() => devices.forEach((device) => device.setOffline(true)));
  const device = (userId, { deviceId = `web-${userId}`, store = new MemoryStore(), timing, limits, random = () => 0.5, log = () => {}, token = async () => jwtOf(userId), WebSocket = server.WebSocket } = {}) => {
    const client = new InorderClient({
      url: "ws://127.0.0.1:1/local",
      userId,
      deviceId,
      store,
      tabs: null,
      token,
      WebSocket,
      clock,
      random,
      timing,
      limits,
      log,
    });
    devices.push(client);
    return client;
  };
  // A device that is online and has nothing left to do.
  const online = async (userId, options) => {
    const client = device(userId, options);
    await client.start();
    await clock.until(() => client.state === "online");
    await clock.advance(200);
    return client;
  };
  const socketOf = (client) => server.sockets.find((s) => s.userId === client.userId && s.deviceId === client.deviceId);
  return { clock, server, device, online, socketOf };
}

/** As setUp, with a device of each of these users that is online, by the user's name. */
export async function setUpOnline(t, ...users) {
  const world = setUp(t);
  for (const userId of users) world[userId] = await world.online(userId);
  return world;
}

/** A world with a server and a browser; its tabs are of one device of alice unless said otherwise. */
export function setUpTabs(t, { store = new SharedStore(), log = () => {} } = {}) {
  const { clock, server, online: alone } = setUp(t);
  const browser = new FakeBrowser(clock);
  const clients = [];
  t.after(() => Promise.all(clients.map((client) => client.close())));
  const open = async (options = {}) => {
    const tab = browser.newTab(server.WebSocket);
    const { userId = "alice", deviceId = "web" } = options;
    const client = new InorderClient({ url: "ws://127.0.0.1:1/local", store, token: () => jwtOf(userId), random: () => 0.5, log, ...tab, WebSocket: tab.WebSocket, ...options, userId, deviceId });
    clients.push(client);
    tab.client = client;
    const started = client.start();
    await clock.advance(1_100);
    await started;
    return Object.assign(client, { tab });
  };
  // Opens tabs; the first one leads.
  const tabs = async (count, options) => {
    const opened = [];
    for (let i = 0; i < count; i++) opened.push(await open(options));
    await clock.until(() => opened.every((client) => client.state === "online"));
    await clock.advance(1_000);
    return opened;
  };
  return { clock, server, browser, open, tabs, alone };
}

/** The texts of the messages that the server has, too. */
export const heldTexts = (client, key) => client.messages(key).filter(({ lost }) => !lost).map(({ text }) => text);
/** The texts of the messages that it has lost. */
export const lostTexts = (client, key) => client.messages(key).filter(({ lost }) => lost).map(({ text }) => text);
export const texts = (client, key) => client.messages(key).map((row) => row.text);
export const seqs = (client, key) => client.messages(key).map((row) => row.seq);
