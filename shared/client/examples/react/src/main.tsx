import { type FormEvent, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./Chat";
import { useDevice } from "./device";
import "./style.css";

function App() {
  const [user, setUser] = useState<string | null>(sessionStorage.user ?? null); // each tab may be somebody else
  const login = (name: string) => setUser((sessionStorage.user = name));
  const logout = () => {
    delete sessionStorage.user;
    setUser(null);
  };
  return user === null ? <Login onLogin={login} /> : <Session user={user} onLogout={logout} />;
}

function Login({ onLogin }: { onLogin: (name: string) => void }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    onLogin(String(new FormData(event.currentTarget).get("name")));
  };
  return (
    <form className="login" onSubmit={submit}>
      <input name="name" placeholder="Your name" aria-label="Your name" required autoFocus />
      <button>Log in</button>
    </form>
  );
}

function Session({ user, onLogout }: { user: string; onLogout: () => void }) {
  const { client, error } = useDevice(user);
  if (error) return <p role="alert">{error.message}</p>;
  if (!client) return <p>Opening…</p>;
  return <Chat client={client} onLogout={onLogout} />;
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
