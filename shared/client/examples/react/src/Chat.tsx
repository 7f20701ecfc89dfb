import type { Conversation, ConversationKey, InorderClient, Row } from "inorder-client";
import { type FormEvent, memo, useEffect, useLayoutEffect, useRef, useState } from "react";
import { useClient, useVisible } from "./device";

const PAGE = 50;

export function Chat({ client, onLogout }: { client: InorderClient; onLogout: () => void }) {
  const [opened, setOpened] = useState<ConversationKey | null>(null);
  const conversations = useClient(client, () => client.conversations());
  const state = useClient(client, () => client.state);
  const detail = useClient(client, () => client.detail);
  const storeError = useClient(client, () => client.storeError);
  const key = opened && client.currentKey(opened);
  return (
    <main data-state={state}>
      <aside>
        <header>
          <b>{client.userId}</b> <button onClick={onLogout}>Log out</button>
        </header>
        <NewConversation onStart={(user) => setOpened(client.keyFor(user))} />
        <nav>
          {conversations.map((conversation) => (
            <Line key={conversation.key} conversation={conversation} current={conversation.key === key} onOpen={setOpened} />
          ))}
        </nav>
      </aside>
      <section>
        {state !== "online" && (
          <p role="status">
            {state === "connecting" ? "Connecting… What you write is sent later." : `Offline: ${detail}`}{" "}
            <button onClick={() => (state === "connecting" ? client.retryNow() : client.setOffline(false))}>Try now</button>
          </p>
        )}
        {storeError && <p role="alert">Nothing is stored any more: {storeError.message}</p>}
        {key === null ? <p>Open a conversation, or start one.</p> : <Messages key={key} client={client} conversationKey={key} />}
      </section>
    </main>
  );
}

function NewConversation({ onStart }: { onStart: (user: string) => void }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    onStart(String(new FormData(event.currentTarget).get("user")));
    event.currentTarget.reset();
  };
  return (
    <form onSubmit={submit}>
      <input name="user" placeholder="Write to…" aria-label="Write to" required />
      <button>Start</button>
    </form>
  );
}

type LineProps = { conversation: Conversation; current: boolean; onOpen: (key: ConversationKey) => void };

const Line = memo(function Line({ conversation: { key, title, unread, last }, current, onOpen }: LineProps) {
  return (
    <button className="line" aria-current={current} onClick={() => onOpen(key)}>
      <b dir="auto">{title}</b> {unread > 0 && <mark>{unread}</mark>}
      <small dir="auto">{last && words(last)}</small>
    </button>
  );
});

function Messages({ client, conversationKey: key }: { client: InorderClient; conversationKey: ConversationKey }) {
  const [limit, setLimit] = useState(PAGE);
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const rows = useClient(client, () => client.messages(key, limit));
  const { closed, earlier, title } = useClient(client, () => client.conversation(key));
  const visible = useVisible();
  const list = useRef<HTMLOListElement>(null);
  const last = rows.at(-1);

  useEffect(() => {
    client.show(key);
    return () => client.show(null);
  }, [client, key]);

  useEffect(() => {
    if (visible) client.markRead(key);
  }, [client, key, last, visible]);

  useLayoutEffect(() => {
    list.current?.lastElementChild?.scrollIntoView({ block: "end" });
  }, [last?.clientMsgId]);

  const attempt = (done: Promise<unknown>) => done.then(() => setProblem(""), (error: Error) => setProblem(error.message));
  const showEarlier = () => {
    setLimit(limit + PAGE);
    if (earlier) attempt(client.loadEarlier(key));
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setText("");
    const sending = client.send(key, text);
    sending.catch(() => setText(text)); // it is empty or too long
    attempt(sending);
  };
  return (
    <>
      <h1 dir="auto">{title}</h1>
      <ol ref={list} aria-label="Messages">
        {(earlier || rows.length === limit) && (
          <li>
            <button onClick={showEarlier}>Earlier</button>
          </li>
        )}
        {rows.map((row) => (
          <Message key={`${row.senderId} ${row.clientMsgId ?? row.seq}`} row={row} client={client} conversationKey={key} />
        ))}
      </ol>
      {problem && <p role="alert">{problem}</p>}
      {closed === null ? (
        <form onSubmit={submit}>
          <input name="text" value={text} onChange={({ target }) => setText(target.value)} placeholder="Message" aria-label="Message" autoComplete="off" />
          <button>Send</button>
        </form>
      ) : (
        <p>Nothing can be written here: {closed}.</p>
      )}
    </>
  );
}

type MessageProps = { row: Row; client: InorderClient; conversationKey: ConversationKey };

const Message = memo(function Message({ row, client, conversationKey }: MessageProps) {
  const { clientMsgId, senderId, mine, state, error, receipt, edited, canRecall } = row;
  return (
    <li className={mine ? "mine" : ""} data-state={state}>
      <b dir="auto">{senderId}</b> <span dir="auto">{words(row)}</span>{" "}
      <small>
        {edited && "edited "}
        {error ? error.message : (receipt ?? state)}
      </small>
      {state === "failed" && clientMsgId && (
        <>
          <button onClick={() => client.retry(clientMsgId)}>Retry</button>
          <button onClick={() => client.discard(clientMsgId)}>Discard</button>
        </>
      )}
      {canRecall && <button onClick={() => client.recall(conversationKey, row)}>Recall</button>}
    </li>
  );
});

function words({ text, kind, recalled, event }: Row): string {
  if (recalled) return "(recalled)";
  return event ? `(${event.kind})` : text || `(${kind})`;
}
