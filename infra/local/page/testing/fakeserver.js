// Connects the page that is loaded after this module to a FakeServer in the same tab, at window.server.
import { systemClock } from "../client/connection.js";
import { FakeServer } from "../client/tests/server.js";

globalThis.server = new FakeServer(systemClock);
globalThis.WebSocket = server.WebSocket;
