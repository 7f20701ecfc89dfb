import react from "@vitejs/plugin-react";
import { defineConfig, loadEnv } from "vite";

// The page finds the local cloud behind its own address: tokens at /dev/token, the socket at /v1.
export default defineConfig(({ mode }) => {
  const target = loadEnv(mode, ".", "INORDER_").INORDER_URL ?? "http://127.0.0.1:3000";
  return { plugins: [react()], server: { proxy: { "/dev/token": target, "/v1": { target, ws: true } } } };
});
