import { InorderClient } from "../client.js";
import { MemoryStore } from "../store.js";
import { VirtualClock } from "./clock.js";
import { FakeServer } from "./server.js";

/** A world with a server and any number of devices, each stopped when the test ends. */
export function setUp(t) {
  const clock = new VirtualClock();
  const server = new FakeServer(clock);
  const devices = [];
  t.after(() => devices.forEach((device) => device.setOffline(true)));
  const device = (userId, { deviceId = `web-${userId}`, store = new MemoryStore(), timing, limits, random = () => 0.5, log = () => {} } = {}) => {
    const client = new InorderClient({
      url: "ws://127.0.0.1:1/local",
      userId,
      deviceId,
      store,
      getToken: async () => userId,
      WebSocket: server.WebSocket,
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

export const texts = (client, key) => client.messages(key).map((row) => row.text);
export const seqs = (client, key) => client.messages(key).map((row) => row.seq);
