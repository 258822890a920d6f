// Where in the page we are: the part of the address after `#`.
//
//   #/runs   #/new?from=RUN[&fork]   #/runs/RUN   #/runs/RUN/league   #/compare?runs=A,B   #/groups/GROUP
//   #/sweeps   #/sweeps/SWEEP

class Router {
  path = $state<string[]>([]);
  query = $state<URLSearchParams>(new URLSearchParams());

  constructor() {
    this.#read();
    addEventListener('hashchange', () => this.#read());
  }

  go(to: string): void {
    location.hash = to;
  }

  /** Change the address without a new entry in the history. */
  replace(to: string): void {
    history.replaceState(null, '', `#${to}`);
    this.#read();
  }

  #read(): void {
    if (location.hash.startsWith('#token=')) return; // not a place
    const [path = '', query = ''] = location.hash.slice(1).split('?');
    this.path = path.split('/').filter(Boolean).map(decode);
    this.query = new URLSearchParams(query);
  }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const router = new Router();

export function linkTo(run: string, tab = ''): string {
  return `#/runs/${encodeURIComponent(run)}${tab ? `/${tab}` : ''}`;
}
