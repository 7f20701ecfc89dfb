import { test } from "node:test";
import { MemoryStore } from "../store.js";
import { checkStore } from "./storecontract.js";

test("MemoryStore keeps the store contract", () => checkStore(new MemoryStore(), async (store) => store));
