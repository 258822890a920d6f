// Who we are: the token from the link, kept in memory and in open tabs only.
//
// It comes after `#`, which browsers do not send, and leaves the address at once, so that neither
// the history, nor a bookmark, nor a screenshot has it. A tab that is opened from another one, by
// ctrl-click say, begins without: it asks the tabs of this very server, and those that have a token
// tell it. When the last one is closed nobody knows it any more.

const KEY = 'rookery.token';
const ORDER = ['read', 'operate', 'admin'] as const;
const PATIENCE_MS = 600; // for another tab to answer

export type Scope = (typeof ORDER)[number];
type Said = { ask: true } | { token: string };

class Access {
  token = $state<string | null>(null);
  refused = $state(false);
  isAsking = $state(false); // other tabs
  scope = $state<Scope | null>(null); // null: not known yet
  #tabs = new BroadcastChannel('rookery');

  constructor() {
    this.#tabs.onmessage = (event: MessageEvent<Said>) => this.#heard(event.data);
  }

  takeFromAddress(): void {
    const found = /^#token=([^&]+)/.exec(location.hash);
    if (found?.[1]) {
      this.use(decodeURIComponent(found[1]));
      history.replaceState(null, '', location.pathname);
      return;
    }
    this.token = sessionStorage.getItem(KEY);
    if (this.token === null) this.#askTabs();
  }

  use(token: string): void {
    this.token = token.trim();
    this.refused = this.isAsking = false;
    this.scope = null;
    sessionStorage.setItem(KEY, this.token);
  }

  /** The server does not take this token (any more). */
  refuse(token: string): void {
    if (token !== this.token) return; // an answer to a question of before
    this.forget();
    this.refused = true;
  }

  forget(): void {
    this.token = this.scope = null;
    sessionStorage.removeItem(KEY);
  }

  /** Why this token may not do what needs a scope; empty: it may, as far as is known. */
  lacks(needed: Scope): string {
    if (this.scope === null || ORDER.indexOf(this.scope) >= ORDER.indexOf(needed)) return '';
    return `This needs a token of scope ${needed}: yours has ${this.scope}`;
  }

  #askTabs(): void {
    this.isAsking = true;
    this.#tabs.postMessage({ ask: true } satisfies Said);
    setTimeout(() => (this.isAsking = false), PATIENCE_MS);
  }

  #heard(said: Said): void {
    if ('token' in said) {
      if (this.isAsking) this.use(said.token);
    } else if (this.token !== null) this.#tabs.postMessage({ token: this.token } satisfies Said);
  }
}

export const access = new Access();
