// Who we are: the token from the link, kept in memory and for this tab only.
//
// It comes after `#`, which browsers do not send, and leaves the address at once, so that neither
// the history, nor a bookmark, nor a screenshot has it.

const KEY = 'rookery.token';

class Access {
  token = $state<string | null>(null);
  refused = $state(false);

  takeFromAddress(): void {
    const found = /^#token=([^&]+)/.exec(location.hash);
    if (found?.[1]) {
      this.use(decodeURIComponent(found[1]));
      history.replaceState(null, '', location.pathname);
    } else {
      this.token = sessionStorage.getItem(KEY);
    }
  }

  use(token: string): void {
    this.token = token.trim();
    this.refused = false;
    sessionStorage.setItem(KEY, this.token);
  }

  /** The server does not take this token (any more). */
  refuse(token: string): void {
    if (token !== this.token) return; // an answer to a question of before
    this.forget();
    this.refused = true;
  }

  forget(): void {
    this.token = null;
    sessionStorage.removeItem(KEY);
  }
}

export const access = new Access();
