// The panel of a conversation: a group's title and members, and what can be done to it as a whole. What we have no
// right to do is not shown.

import { MAX_TITLE_RUNES, countRunes } from "./client/index.js";
import { $, KeyedList, askFirst, button, element, setAvatar, setParts, setText, worded } from "./dom.js";
import { membersWords, namesIn, plain, titleOf } from "./words.js";

const ROLE_WORDS = { owner: "owner", admin: "admin", member: "" };

export class Details {
  #client;
  #refused;
  #key = null;
  #roster = new KeyedList($("roster"), () => this.#newMember());

  /** refused(error) is called when the client does not accept a change. */
  constructor(client, refused) {
    this.#client = client;
    this.#refused = refused;
    $("details-close").addEventListener("click", () => $("details").close());
    $("title-form").addEventListener("submit", (event) => this.#rename(event));
    $("add-form").addEventListener("submit", (event) => this.#add(event));
    this.#onSecondClick("clear", "Hide all messages for me?", () => this.#client.clear(this.#key));
    this.#onSecondClick("leave-group", "Really leave?", () => this.#client.leave(this.#key).catch(this.#refused));
    this.#onSecondClick("dissolve", "End it for everyone?", () => this.#client.dissolve(this.#key).catch(this.#refused));
  }

  open(key) {
    this.#key = key;
    this.#roster.clear();
    $("new-title").value = this.#client.conversation(key).title;
    $("add-members").value = "";
    $("details").showModal();
    this.draw();
  }

  close() {
    $("details").close();
  }

  draw() {
    if (!$("details").open) return;
    const conversation = this.#client.conversation(this.#key);
    const { kind, closed } = conversation;
    const may = (action) => kind === "group" && this.#client.may(this.#key, action);
    setParts($("details-title"), [{ name: titleOf(conversation) }]);
    $("title-form").hidden = !may("setTitle");
    $("add-form").hidden = !may("add");
    $("leave-group").hidden = !may("leave");
    $("dissolve").hidden = !may("dissolve");
    $("roster-part").hidden = kind !== "group" || closed === "left";
    this.#drawRoster();
  }

  #drawRoster() {
    const members = this.#client.members(this.#key);
    setText($("roster-title"), members === null ? "Members" : membersWords(members.length));
    $("roster-wait").hidden = members !== null;
    this.#roster.draw(members ?? [], ({ userId }) => userId, (node, member) => this.#fillMember(node, member));
  }

  #newMember() {
    const node = element("li", "member", [element("span", "avatar"), worded("span", "name"), element("span", "role"), element("span", "acts")]);
    const userId = () => node.dataset.member;
    const acts = [
      ["admin", "Make admin", null, () => this.#client.setRole(this.#key, userId(), "admin").catch(this.#refused)],
      ["member", "Make member", null, () => this.#client.setRole(this.#key, userId(), "member").catch(this.#refused)],
      ["owner", "Make owner", "Hand the group over?", () => this.#client.setRole(this.#key, userId(), "owner").catch(this.#refused)],
      ["remove", "Remove", "Really remove?", () => this.#client.removeMembers(this.#key, [userId()]).catch(this.#refused)],
    ];
    for (const [act, label, question, run] of acts) {
      const item = button("", label, question ? null : run);
      if (question) askFirst(item, question, run);
      item.dataset.act = act;
      node.lastChild.append(item);
    }
    return node;
  }

  #fillMember(node, { userId, role }) {
    node.dataset.member = userId;
    node.dataset.role = role;
    const [avatar, name, label, acts] = node.children;
    const self = userId === this.#client.userId;
    setAvatar(avatar, userId);
    avatar.ariaHidden = "true";
    setParts(name, self ? [{ name: userId }, " (you)"] : [{ name: userId }]);
    setText(label, ROLE_WORDS[role] ?? role);
    const mayName = !self && this.#client.may(this.#key, "setRole");
    const shown = { admin: mayName && role === "member", member: mayName && role === "admin", owner: mayName, remove: !self && this.#client.may(this.#key, "remove", role) };
    for (const act of acts.children) {
      act.hidden = !shown[act.dataset.act];
      act.setAttribute("aria-description", plain([{ name: userId }]));
    }
  }

  #rename(event) {
    event.preventDefault();
    const title = $("new-title").value.trim();
    if (title === "" || countRunes(title) > MAX_TITLE_RUNES || title === this.#client.conversation(this.#key).title) return;
    this.#client.setTitle(this.#key, title).catch(this.#refused);
    this.close();
  }

  #add(event) {
    event.preventDefault();
    const names = namesIn($("add-members").value);
    if (names.length === 0) return;
    this.#client.addMembers(this.#key, names).catch(this.#refused);
    $("add-members").value = "";
  }

  #onSecondClick(id, question, act) {
    askFirst($(id), question, () => {
      act();
      this.close();
    });
  }
}
